"""Whether what was located holds: the other half, random heads, repeated splits."""
