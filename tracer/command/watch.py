"""Runs a recorded command: passes on signals and output, applies the time limit, and keeps the end of its errors."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Protocol

FORWARDED = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
TAIL_BYTES = 1 << 14
GRACE_S = 5.0
"""Time between the request to end and SIGKILL."""
_READ_BYTES = 1 << 16
_SOON_S = 0.1
_OUTPUT, _ERRORS = 1, 2


class Output(Protocol):
    """Filters what a command writes to standard output."""

    def began(self, pid: int) -> None: ...
    def take(self, data: bytes) -> bytes: ...

    @property
    def is_urgent(self) -> bool:
        """Whether text is waiting that should be passed on if no more output follows soon."""

    def release(self) -> bytes:
        """Return the waiting text."""


@dataclass(frozen=True)
class Ending:
    pid: int
    code: int
    """Return code as in `subprocess`: -n if signal n ended the command."""
    duration_ns: int
    timed_out: bool
    interrupted: bool
    """Whether this process got Ctrl-C, SIGTERM or SIGHUP meanwhile."""
    error_tail: str | None
    """End of standard error; None if it was not kept."""

    @property
    def exit_code(self) -> int:
        """Exit code of the command; 128 + n if signal n ended it, as in shells."""
        return 128 - self.code if self.code < 0 else self.code

    @property
    def text(self) -> str:
        """Return how the program ended as a clause, such as ``the program ended with code 1``."""
        if self.code >= 0:
            return f"the program ended with code {self.code}"
        numbers = {int(known): known.name for known in signal.Signals}
        return f"{numbers.get(-self.code, f'signal {-self.code}')} ended the program"


def watch(
    command: Sequence[str],
    environment: Mapping[str, str],
    *,
    timeout_s: float | None = None,
    keep_tail: bool = False,
    output: Output | None = None,
) -> Ending:
    """Run `command` to its end with our streams; `keep_tail` reads standard error, `output` filters standard output.

    Raises FileNotFoundError if the command does not exist, PermissionError if it cannot be run.
    """
    errors = _Stream(_ERRORS) if keep_tail else None
    printed = _Stream(_OUTPUT, output) if output else None
    streams = [stream for stream in (errors, printed) if stream]
    started = time.perf_counter_ns()
    try:
        child = subprocess.Popen(
            command, env=environment, stderr=errors.child if errors else None, stdout=printed.child if printed else None
        )
    except BaseException:
        for stream in streams:
            stream.close()
        raise
    if output:
        output.began(child.pid)
    for stream in streams:
        stream.follow()
    with _signals(child) as asked:
        try:
            child.wait(timeout_s)
            timed_out = False
        except subprocess.TimeoutExpired:
            timed_out = True
            _end(child)
    duration_ns = time.perf_counter_ns() - started
    if errors:
        errors.wait(GRACE_S)
    if printed:
        printed.wait(GRACE_S if timed_out else None)
    return Ending(child.pid, child.returncode, duration_ns, timed_out, bool(asked), errors.tail if errors else None)


@contextmanager
def _signals(child: subprocess.Popen[bytes]) -> Iterator[list[int]]:
    """Pass signals on to the child, and yield the list of their numbers; the terminal sends Ctrl-C to it anyway."""
    asked: list[int] = []

    def on_signal(number: int, frame: FrameType | None) -> None:
        asked.append(number)
        if number != signal.SIGINT:
            child.send_signal(number)

    before = {number: signal.signal(number, on_signal) for number in (*FORWARDED, signal.SIGINT)}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end(child: subprocess.Popen[bytes]) -> None:
    """End the child and the processes that it has started, which would otherwise continue without it."""
    family = descendants(child.pid)
    child.terminate()
    with suppress(subprocess.TimeoutExpired):
        child.wait(GRACE_S)
    child.kill()
    child.wait()
    for pid in family:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def descendants(pid: int) -> list[int]:
    """Return the children of the process `pid` and their descendants; empty except on Linux."""
    found: list[int] = []
    waiting = [pid]
    while waiting:
        with suppress(OSError):
            for task in Path(f"/proc/{waiting.pop()}/task").iterdir():
                with suppress(OSError):
                    waiting += [int(text) for text in (task / "children").read_text().split()]
        found += [one for one in waiting if one not in found]
    return found


class _Stream:
    """A stream of a child that is passed on to ours; if ours is a terminal, the child's stream is one too."""

    def __init__(self, number: int, output: Output | None = None) -> None:
        self._number, self._output = number, output
        self._end = b""
        self._thread = threading.Thread(target=self._pass_on, daemon=True)
        self._ours, self.child = _terminal(number) or os.pipe()

    def follow(self) -> None:
        """Start to pass the stream on, once the child has inherited its end."""
        os.close(self.child)
        self._thread.start()

    def close(self) -> None:
        os.close(self._ours)
        os.close(self.child)

    @property
    def tail(self) -> str:
        return self._end.decode("utf-8", "replace")

    def wait(self, most_s: float | None) -> None:
        """Wait for the end of the stream, which a process that the child has started may keep open."""
        self._thread.join(most_s)

    def _pass_on(self) -> None:
        while data := self._read():
            self._end = (self._end + data)[-TAIL_BYTES:]
            if not self._passed(self._output.take(data) if self._output else data):
                break
            if self._output and self._output.is_urgent and not select.select([self._ours], [], [], _SOON_S)[0]:
                self._passed(self._output.release())
        else:
            self._passed(self._output.release() if self._output else b"")
        os.close(self._ours)

    def _passed(self, data: bytes) -> bool:
        """Write `data`; return False if standard output is a closed pipe, so that the child's pipe is closed too."""
        try:
            self._write(memoryview(data))
        except BrokenPipeError:
            return self._number != _OUTPUT
        except OSError:
            pass
        return True

    def _write(self, view: memoryview) -> None:
        while view:
            try:
                view = view[os.write(self._number, view) :]
            except BlockingIOError:  # our parent made it non-blocking
                select.select([], [self._number], [])

    def _read(self) -> bytes:
        try:
            return os.read(self._ours, _READ_BYTES)
        except OSError:  # a terminal whose last writer has closed it
            return b""


def _terminal(number: int) -> tuple[int, int] | None:
    """Return both ends of a pseudo-terminal like the terminal of our stream, or None if that is not a terminal."""
    try:
        if not os.isatty(number):
            return None
        import pty
        import termios

        ours, child = pty.openpty()
        modes = termios.tcgetattr(child)
        modes[1] &= ~termios.OPOST  # the real terminal does it
        termios.tcsetattr(child, termios.TCSANOW, modes)
        if sys.version_info >= (3, 11):
            termios.tcsetwinsize(child, termios.tcgetwinsize(number))
        return ours, child
    except (OSError, ImportError):
        return None
