"""Log results to experiment trackers: MLflow, Weights & Biases, Trackio."""
