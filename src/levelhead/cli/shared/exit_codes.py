"""The exit codes, and the exception that ends a command with one."""

from __future__ import annotations

# CI scripts branch on these. 130 is the shell's code for SIGINT (128 + 2).
PASS, FAIL, INCONCLUSIVE, ERROR, INTERRUPTED = 0, 1, 2, 3, 130


class ExitWithCode(Exception):
    """End the command line with one of these exit codes.

    Args:
        code: the exit code.
    """

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code
