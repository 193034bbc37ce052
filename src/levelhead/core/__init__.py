"""Errors, results, statistics, canonical JSON, files. Nothing here imports torch."""
