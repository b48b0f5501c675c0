"""The progress of an ingest on standard error: a bar in a terminal, and a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack
from typing import TextIO

import click

from stepscope.viewer.store.distributed_ingest.task import Done, Task
from stepscope.viewer.text.clean import clean
from stepscope.viewer.text.formats import format_bytes

LINE_EVERY_S = 5.0


class Tally:
    """The work done, its rate, and the time that the rest takes at this rate."""

    def __init__(self, logs: int, log_bytes: int) -> None:
        self.logs, self.log_bytes = logs, log_bytes
        self.done = self.done_bytes = self.retries = 0
        self._start = time.monotonic()

    def add(self, task: Done) -> None:
        self.done += 1
        self.done_bytes += task.log_bytes
        self.retries += task.earlier_tries

    def text(self) -> str:
        """``12 of 64 logs, 48.1 MB of 256 MB, 12.3 MB/s, 0:00:17 left``; the rate is left out until it is known."""
        parts = [
            f"{self.done:,} of {self.logs:,} logs",
            f"{format_bytes(self.done_bytes)} of {format_bytes(self.log_bytes)}",
        ]
        seconds = time.monotonic() - self._start
        if self.done_bytes and seconds > 0:
            rate = self.done_bytes / seconds
            parts += [f"{format_bytes(int(rate))}/s", f"{_clock((self.log_bytes - self.done_bytes) / rate)} left"]
        if self.retries:
            parts.append(f"{self.retries:,} retried")
        return ", ".join(parts)


class ProgressLines:
    """Plain lines, for a file or a pipe."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._next = 0.0
        self._tally = Tally(0, 0)

    def begin(self, logs: int, log_bytes: int) -> None:
        self._tally = Tally(logs, log_bytes)
        self._next = time.monotonic() + LINE_EVERY_S

    def done(self, task: Done) -> None:
        self._tally.add(task)
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + LINE_EVERY_S
            self._say(self._tally.text())

    def retry(self, task: Task, reason: str) -> None:
        self._say(retry_text(task, reason))

    def end(self) -> None:
        if self._tally.logs:
            self._say(self._tally.text())

    def _say(self, text: str) -> None:
        print(f"stepscope: {text}", file=self._out, flush=True)


class ProgressBar:
    """A bar of bytes with the same text beside it."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._shown = ExitStack()
        self._tally = Tally(0, 0)

    def begin(self, logs: int, log_bytes: int) -> None:
        self._tally = Tally(logs, log_bytes)
        self._bar = self._shown.enter_context(
            click.progressbar(
                length=max(log_bytes, 1),
                label=self._tally.text(),
                bar_template="%(bar)s %(label)s",
                width=24,
                file=self._out,
            )
        )

    def done(self, task: Done) -> None:
        self._tally.add(task)
        self._bar.label = self._tally.text()
        self._bar.update(task.log_bytes)

    def retry(self, task: Task, reason: str) -> None:
        click.echo(f"\nstepscope: {retry_text(task, reason)}", file=self._out)

    def end(self) -> None:
        self._shown.close()


def watcher(out: TextIO | None = None) -> ProgressBar | ProgressLines:
    """The display of progress on `out`, or on standard error."""
    out = out or sys.stderr
    return ProgressBar(out) if out.isatty() else ProgressLines(out)


def retry_text(task: Task, reason: str) -> str:
    return clean(f"{task.log.address}: {reason}; it will be tried again")


def _clock(seconds: float) -> str:
    whole = int(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}"
