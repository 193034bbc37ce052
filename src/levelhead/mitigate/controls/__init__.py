"""Placebo edits, and the comparison of an edit with them."""
