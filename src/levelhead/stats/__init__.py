"""Statistics based on scipy: intervals, tests, multiple testing, power. The rng is an argument."""
