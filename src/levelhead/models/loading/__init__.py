"""Checkpoints of any kind, and models behind a server, opened."""
