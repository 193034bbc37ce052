"""Charts of edits: sweeps, Pareto fronts, selection, placebos, probing."""
