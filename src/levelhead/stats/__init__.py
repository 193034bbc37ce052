"""Statistics on scipy: intervals, tests, families of tests, power. Chance is always passed in."""
