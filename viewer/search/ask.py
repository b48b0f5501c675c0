"""Runs each statement of the user in its own process, with limited time and memory and only while somebody waits."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

from stepscope.viewer.errors import StepscopeError
from stepscope.viewer.search.queries.sql_process import StatementRun
from stepscope.viewer.search.queries.tables import SqlAnswer
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.text.formats import format_bytes

MOST_ROWS = 1_000
SECONDS = 10.0
MEMORY_BYTES = 10**9
ANSWER_BYTES = 4 * 10**6
CELL_CHARACTERS = 100_000
AT_ONCE = 2
_START_SECONDS = 60.0
_LOOK_SECONDS = 0.05
"""Seconds between two checks whether somebody still waits."""
_JSON_BYTES = 6
"""Maximum number of bytes of the answer per byte of a cell."""
_PLACES = threading.BoundedSemaphore(AT_ONCE)
_BOOT = "import sys; sys.path[:] = sys.argv[1:]; from stepscope.viewer.search.queries.sql_process import main; main()"


def ask(
    trace: Trace,
    statement: str,
    most: int = MOST_ROWS,
    seconds: float = SECONDS,
    *,
    memory_bytes: int = MEMORY_BYTES,
    answer_bytes: int = ANSWER_BYTES,
    cell_characters: int = CELL_CHARACTERS,
    gone: threading.Event | None = None,
) -> SqlAnswer:
    """Return the rows of one statement that reads the index. It can open no file and change nothing.

    Raises StepscopeError for any other statement, an invalid one, and one that takes longer than `seconds` or more
    memory than `memory_bytes`. `gone` is set once nobody waits for the answer any more.
    """
    connect = trace.connect_apart
    if connect is None:
        raise StepscopeError(
            "The index of this trace is in memory, where a statement cannot reach it: free some space on the disk."
        )
    task = StatementRun(connect, statement, most, memory_bytes, answer_bytes, cell_characters, trace.is_one_file)
    wait = _Wait(gone or threading.Event())
    with _place(wait, seconds), _started(task) as worker:
        wait.until(worker.ready, _START_SECONDS, "The process for the statement did not start.")
        wait.until(worker.done, seconds, f"The statement took longer than {seconds:g} s and was ended: request less.")
    if not worker.answer:
        raise _too_much(memory_bytes)
    found = json.loads(worker.answer)
    if "problem" in found:
        raise StepscopeError(found["problem"]) if found["problem"] else _too_much(memory_bytes)
    return SqlAnswer(**found)


class _Wait:
    def __init__(self, gone: threading.Event) -> None:
        self._gone = gone

    def until(self, event: threading.Event, seconds: float, problem: str) -> None:
        """Wait for `event`. Raises StepscopeError if it takes longer or nobody waits for the answer any more."""
        end = time.monotonic() + seconds
        while not event.wait(_LOOK_SECONDS):
            if self._gone.is_set():
                raise StepscopeError("The request was cancelled.")
            if time.monotonic() > end:
                raise StepscopeError(problem)


@contextmanager
def _place(wait: _Wait, seconds: float) -> Iterator[None]:
    """Reserve one of the few places for statements that run at the same time."""
    end = time.monotonic() + seconds
    while not _PLACES.acquire(timeout=_LOOK_SECONDS):
        if wait._gone.is_set() or time.monotonic() > end:
            raise StepscopeError(f"{AT_ONCE} other statements are still running: try again when they have ended.")
    try:
        yield
    finally:
        _PLACES.release()


class _Worker:
    """The process, and a thread that reads its output."""

    def __init__(self, process: subprocess.Popen[bytes], most_bytes: int) -> None:
        self.ready, self.done = threading.Event(), threading.Event()
        self.answer = b""
        self._process, self._most = process, most_bytes
        self._reader = threading.Thread(target=self._read, name="sql")
        self._reader.start()

    def _read(self) -> None:
        out: IO[bytes] = self._process.stdout  # type: ignore[assignment]
        try:
            if out.read(1):
                self.ready.set()
                answer = out.read(self._most + 1)
                self.answer = answer if len(answer) <= self._most else b""
        finally:
            self.ready.set()
            self.done.set()

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()


@contextmanager
def _started(task: StatementRun) -> Iterator[_Worker]:
    command = [sys.executable, "-I", "-S", "-c", _BOOT, *sys.path]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL) as process:
        worker = _Worker(process, _JSON_BYTES * (task.answer_bytes + task.cell_characters) + (1 << 20))
        try:
            stdin: IO[bytes] = process.stdin  # type: ignore[assignment]
            try:
                stdin.write(pickle.dumps(task))
                stdin.flush()
            except BrokenPipeError:
                pass  # it ended without an answer
            yield worker
        finally:
            worker.end()


def _too_much(memory_bytes: int) -> StepscopeError:
    return StepscopeError(f"The statement needs more memory than {format_bytes(memory_bytes)}: request less.")
