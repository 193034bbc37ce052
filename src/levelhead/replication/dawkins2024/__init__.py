"""Dawkins et al. 2024, projective methods: claims, downstream tasks, and numbers of pairs."""
