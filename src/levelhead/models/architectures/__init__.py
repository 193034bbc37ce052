"""Architectures: where each model family has the modules that levelhead reads and edits."""
