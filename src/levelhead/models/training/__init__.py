"""Fine-tuning, continued pretraining, and training from scratch."""
