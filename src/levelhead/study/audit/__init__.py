"""An audit: a fixed core suite, and what the time budget adds."""
