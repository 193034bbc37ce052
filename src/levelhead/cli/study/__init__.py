"""`levelhead study` and what is made of studies."""
