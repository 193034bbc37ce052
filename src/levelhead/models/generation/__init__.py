"""Generation: texts that a causal model writes after a prompt, with its edits at every step."""
