"""Whether a conclusion survives other wordings, other measures and other pairs of groups."""
