"""Directions fitted and projected out."""
