"""Code that replicates single papers."""
