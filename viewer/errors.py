"""The one error that reaches the user as a sentence instead of a traceback."""

from __future__ import annotations


class StepscopeError(Exception):
    """One sentence for the user: what is wrong, with which file, and what to do.

    `exit_code` is what the command returns: 2 for usage, missing files, files that are no log, wrong versions.
    """

    def __init__(self, message: str, exit_code: int = 2) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def reason_of(error: Exception) -> str:
    """An error that nobody foresaw, in a few words."""
    first = str(error).strip().partition("\n")[0][:200]
    return f"{type(error).__name__}: {first}" if first else type(error).__name__
