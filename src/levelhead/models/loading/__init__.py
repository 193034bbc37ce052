"""Loading: local folders, Hub checkpoints, GGUF files, and models behind an HTTP server."""
