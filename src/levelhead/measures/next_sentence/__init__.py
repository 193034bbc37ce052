"""Measures of which sentence a model expects next."""
