"""One forward pass: hooks, caches, attention rows, patched activations."""
