"""Whether a concept can still be read after an edit."""
