"""How heads behave: what changes in them when a group's word is exchanged."""
