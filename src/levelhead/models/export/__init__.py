"""Edited models written for plain transformers."""
