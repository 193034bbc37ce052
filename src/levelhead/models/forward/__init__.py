"""Forward passes: hooks, caches, attention rows, and replaced forward methods."""
