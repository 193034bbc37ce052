"""Effects of knowledge before a prompt on the answer."""
