"""Scores of heads: gradients, integrated gradients, ablation."""
