"""Reading, searching and mining of plain text for sentences about groups."""
