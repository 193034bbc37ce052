"""What knowledge before a prompt does to the answer."""
