"""Whether a concept can still be read from a model after an edit."""
