"""Measures of what a model writes."""
