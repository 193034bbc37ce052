"""Measures of where words lie in embeddings."""
