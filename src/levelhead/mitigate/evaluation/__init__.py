"""What an edit gains and what it costs."""
