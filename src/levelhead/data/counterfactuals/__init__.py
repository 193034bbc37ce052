"""Texts in which the group is exchanged."""
