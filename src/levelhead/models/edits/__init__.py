"""Edits of activations, their files, and merging them into weights."""
