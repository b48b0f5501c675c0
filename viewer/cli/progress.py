"""Shows what a command is doing."""

from __future__ import annotations

import sys

import click


class Progress:
    """Shows in one line of a terminal what the command is doing."""

    def __init__(self) -> None:
        self._is_shown = sys.stderr is not None and sys.stderr.isatty()

    def __enter__(self) -> Progress:
        self.say("reading the trace")
        return self

    def __exit__(self, *error: object) -> None:
        self.clear()

    def say(self, text: str) -> None:
        if self._is_shown:
            click.echo(f"\r\x1b[Kstepscope: {text} …", err=True, nl=False)

    def clear(self) -> None:
        if self._is_shown:
            click.echo("\r\x1b[K", err=True, nl=False)
