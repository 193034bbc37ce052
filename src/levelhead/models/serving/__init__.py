"""Models that another program runs: a server behind HTTP, or vLLM in this process."""
