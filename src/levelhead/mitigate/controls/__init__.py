"""Placebo edits, and whether an edit does more than they do."""
