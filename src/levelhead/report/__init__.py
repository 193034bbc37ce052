"""Charts, pages and files for people. Results carry the data; nothing is computed here."""
