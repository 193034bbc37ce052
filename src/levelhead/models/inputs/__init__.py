"""Inputs: texts as rows of tokens, and rows as batches."""
