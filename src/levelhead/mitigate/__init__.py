"""Edits and trainings that answer a measurement, each with its price beside its gain."""
