"""Forwards, tokens and time of a plan, before it is run."""
