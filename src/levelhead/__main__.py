"""`python -m levelhead` is `levelhead`."""

from levelhead.cli import main

main()
