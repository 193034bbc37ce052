"""What biased heads attend to when the group in a text is exchanged."""
