"""Words of groups and targets, each list with its source."""
