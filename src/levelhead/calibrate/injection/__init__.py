"""A known dose of an association, trained into a real model, and what measures say of it."""
