"""What a model is worth besides its bias: perplexity, accuracy, agreement."""
