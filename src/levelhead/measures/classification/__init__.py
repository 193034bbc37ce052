"""Measures of what a classifier decides about people."""
