"""What we ask: lexicons, swaps, datasets, prompts, contexts, and the linter. No torch in it."""
