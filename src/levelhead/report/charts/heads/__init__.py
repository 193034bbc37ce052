"""Charts of heads: maps, rankings, controls, masking."""
