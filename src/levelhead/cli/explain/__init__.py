"""`levelhead explain`."""
