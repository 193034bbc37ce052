"""`levelhead mitigate`."""
