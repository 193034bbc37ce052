"""Models trained further: counterfactual data augmentation, dropout."""
