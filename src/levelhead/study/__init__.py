"""Grids of models, edits and measures, written down in a file and run as often as wanted."""
