"""Who computes tasks: this process, several processes, a Ray cluster."""
