"""A policy, the verdict on a run by it, and the files that CI systems read."""
