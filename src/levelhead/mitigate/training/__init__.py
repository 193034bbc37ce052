"""Models with further training: counterfactual data augmentation and dropout."""
