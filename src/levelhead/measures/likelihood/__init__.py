"""Measures of which of two sentences is likelier."""
