"""Validation of located heads: the other half, random heads and repeated splits."""
