"""Languages: a row of languages.toml and a folder each, with sentences and lexicons."""
