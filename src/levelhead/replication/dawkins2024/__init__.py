"""Projective methods (Dawkins, 2024): its claims, and its downstream tasks."""
