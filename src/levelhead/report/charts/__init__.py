"""One file a chart; `registry` lists which result has which."""
