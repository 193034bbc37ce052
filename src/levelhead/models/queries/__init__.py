"""Queries: the rows that run through a model, and the readouts of the forward pass."""
