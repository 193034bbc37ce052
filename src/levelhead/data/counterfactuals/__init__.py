"""Counterfactuals: texts in which the words of two groups are exchanged."""
