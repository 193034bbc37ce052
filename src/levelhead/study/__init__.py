"""Studies: grids of models, edits and measures, defined in a file and reproducible."""
