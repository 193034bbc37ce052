"""Bridges to other systems: each needs the system that it is named for."""
