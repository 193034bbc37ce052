"""Prompts from published papers."""
