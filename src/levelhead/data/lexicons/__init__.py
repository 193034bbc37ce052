"""Lexicons: words of groups and targets, each list with its source."""
