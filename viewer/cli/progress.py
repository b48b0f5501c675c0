"""Shows what a command is doing."""

from __future__ import annotations

import sys
import time

import click

from stepscope.viewer.text.formats import progress_bar

SHOWN_AFTER_S, EVERY_S = 1.0, 0.2


class IndexBar:
    """Shows a bar in a terminal while a trace is read that takes longer than a moment."""

    def __init__(self) -> None:
        self._progress = Progress()
        self._next = time.monotonic() + SHOWN_AFTER_S
        self._is_shown = False

    def __call__(self, what: str, done: int, total: int) -> None:
        now = time.monotonic()
        if done >= total:
            self.clear()
        elif now >= self._next:
            self._next, self._is_shown = now + EVERY_S, True
            self._progress.say(f"{what} {progress_bar(done / total)}")

    def clear(self) -> None:
        if self._is_shown:
            self._progress.clear()


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
