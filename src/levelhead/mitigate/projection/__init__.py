"""Subspaces and the projections that remove them."""
