"""Steering: vectors that are added to activations, everywhere or where a detector fires."""
