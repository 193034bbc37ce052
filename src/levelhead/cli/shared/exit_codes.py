"""The exit codes, and how a verb leaves with one."""

from __future__ import annotations

PASS, FAIL, INCONCLUSIVE, ERROR, INTERRUPTED = 0, 1, 2, 3, 130


class ExitWith(Exception):
    """Leave the command line with a code of ours."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code
