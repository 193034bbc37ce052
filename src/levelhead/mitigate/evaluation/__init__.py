"""Gain and utility cost of edits."""
