"""Prompts of the papers."""
