"""Decisions of causal and chat models, by exact log-probabilities of the possible answers."""
