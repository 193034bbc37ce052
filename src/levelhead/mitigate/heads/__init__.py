"""Masking, scaling and amplification of heads."""
