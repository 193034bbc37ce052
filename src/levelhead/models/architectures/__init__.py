"""What levelhead knows of every family of models."""
