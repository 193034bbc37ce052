"""`levelhead data`."""
