"""Heads masked, scaled and amplified."""
