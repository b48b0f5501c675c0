"""Opens a trace while the process prepares to show it."""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import IO, TYPE_CHECKING, NamedTuple

import orjson

from stepscope.viewer.ingest.sources import STDIN, TracePath, trace_names
from stepscope.viewer.ingest.watch import watched
from stepscope.viewer.store.cache_folder import has_index
from stepscope.viewer.store.parquet.store_marker import means_store

if TYPE_CHECKING:
    from stepscope.viewer.store.trace import Trace

PATIENCE_S = 1.0
"""Time after which an index that is not there yet is waited for in the browser."""
EVERY_S = 0.1


class HowFar(NamedTuple):
    """What is being done for an index, how much of it is done, and how much there is to do."""

    what: str = "finding the logs"
    done: int = 0
    total: int = 0


class Building:
    """An index that a child process builds. Its errors are ignored, because opening the trace raises them again.

    The child ends when this process does, however that ends."""

    def __init__(self, path: TracePath, ask: Callable[[Trace], None]) -> None:
        self.how_far = HowFar()
        self._path = path
        self._ended = threading.Event()
        self._is_stopped = False
        sys.stdout.flush()
        reader, writer = os.pipe()
        self._child = os.fork()
        if self._child == 0:
            try:
                # A terminal sends Ctrl-C to both processes, but `stop` decides whether the child ends.
                signal.signal(signal.SIGINT, signal.SIG_IGN)
                signal.signal(signal.SIGTERM, signal.default_int_handler)
                os.close(reader)
                with os.fdopen(writer, "wb", buffering=0) as pipe:
                    threading.Thread(target=_end_without_reader, args=(pipe.fileno(),), daemon=True).start()
                    teller = _Teller(pipe)
                    with watched(teller):
                        trace = _open(path)
                    teller("looking for what is wrong", 0, 0)
                    ask(trace)
                    trace.close()
            finally:
                os._exit(0)
        os.close(writer)
        threading.Thread(target=self._listen, args=(os.fdopen(reader, "rb"),), daemon=True).start()

    def has_ended(self, within_s: float) -> bool:
        return self._ended.wait(within_s)

    def open(self) -> Trace | None:
        """Wait for the index and open the trace, or return None if it was stopped.

        Raises StepscopeError if the trace cannot be opened.
        """
        self._ended.wait()
        return None if self._is_stopped else _open(self._path)

    def stop(self) -> None:
        """End the child process if it is still there."""
        if not self._ended.is_set():
            self._is_stopped = True
            with suppress(ProcessLookupError):
                os.kill(self._child, signal.SIGTERM)
            self._ended.wait()

    def _listen(self, pipe: IO[bytes]) -> None:
        with pipe:
            for line in pipe:
                self.how_far = HowFar(*orjson.loads(line))
        os.waitpid(self._child, 0)
        self._ended.set()


def _end_without_reader(pipe: int) -> None:
    """End this process as `Building.stop` does once nobody can read from the pipe any more."""
    waiter = select.poll()
    waiter.register(pipe, 0)  # errors are always reported
    waiter.poll()
    os.kill(os.getpid(), signal.SIGTERM)


class _Teller:
    """Writes to a pipe how far the work is."""

    def __init__(self, pipe: IO[bytes]) -> None:
        self._pipe, self._next = pipe, 0.0

    def __call__(self, what: str, done: int, total: int) -> None:
        now = time.monotonic()
        if now >= self._next or done >= total:
            self._next = now + EVERY_S
            with suppress(OSError):  # the parent has ended
                self._pipe.write(orjson.dumps([what, done, total], option=orjson.OPT_APPEND_NEWLINE))


def open_in_background(
    path: TracePath, get_ready: Callable[[], None], ask: Callable[[Trace], None]
) -> Trace | Building:
    """Open a trace while `get_ready` runs; `ask` queries what is shown first meanwhile, which keeps the findings.

    Returns what is being built if that takes longer than `PATIENCE_S`.
    """
    names = trace_names(path)
    if has_index(names):  # it is usually current
        with ThreadPoolExecutor(1) as thread:
            opening = thread.submit(_open_and_ask, path, ask)
            get_ready()
            return opening.result()
    # Standard input can be read only once, and a STORE opens fast.
    if STDIN in names or means_store(names) or not hasattr(os, "fork"):
        get_ready()
        return _open(path)
    building = Building(path, ask)
    try:
        get_ready()
        return _open(path) if building.has_ended(PATIENCE_S) else building
    except BaseException:
        building.stop()
        raise


def _open_and_ask(path: TracePath, ask: Callable[[Trace], None]) -> Trace:
    trace = _open(path)
    ask(trace)
    return trace


def _open(path: TracePath) -> Trace:
    from stepscope.viewer.store.open import open_trace

    return open_trace(path)
