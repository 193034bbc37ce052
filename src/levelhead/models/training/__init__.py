"""Training: fine-tuning, continued pretraining, and training from scratch."""
