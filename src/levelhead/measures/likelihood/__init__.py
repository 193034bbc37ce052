"""Measures that compare the likelihood of sentences."""
