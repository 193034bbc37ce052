"""Export: write edited models for plain transformers and PyTorch."""
