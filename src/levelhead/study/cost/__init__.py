"""Estimates of the forward passes, tokens and time of a plan, before it is run."""
