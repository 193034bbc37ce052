"""The version, in a module of its own: `core` reads it without importing the package's names."""

__version__ = "0.1.0"
