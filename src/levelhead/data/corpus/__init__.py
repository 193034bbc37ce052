"""Plain text: read, searched and mined for sentences about groups."""
