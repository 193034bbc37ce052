"""Scores of heads: gradients, integrated gradients and ablation."""
