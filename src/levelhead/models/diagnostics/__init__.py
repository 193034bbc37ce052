"""Whether levelhead can be trusted on a model: checks on its own weights."""
