"""Policies, the verdict of a policy on a run, and files for CI systems."""
