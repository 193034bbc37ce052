"""What belongs to one paper and to nothing else."""
