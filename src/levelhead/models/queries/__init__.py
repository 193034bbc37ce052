"""What can be asked of a model, and what is read from its forward pass."""
