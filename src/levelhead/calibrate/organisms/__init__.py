"""Model organisms: the planted language and the models grown on it."""
