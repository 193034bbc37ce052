"""Measures of the words that a model fills into a blank."""
