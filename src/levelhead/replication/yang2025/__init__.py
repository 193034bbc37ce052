"""Yang et al. 2025: masking curves (Table 3), and tasks with heads masked (Table 2)."""
