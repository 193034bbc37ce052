"""A prefix of counterexamples, chosen and tested."""
