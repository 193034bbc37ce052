"""Scorers of generated texts, and their calibration."""
