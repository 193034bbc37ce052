"""What a model must be able to do before a null result of a measure means anything."""
