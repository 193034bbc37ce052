"""Charts, one per file; `registry` maps result types to charts."""
