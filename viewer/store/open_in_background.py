"""Opens a trace while the process prepares to show it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from stepscope.viewer.ingest.sources import STDIN, TracePath, trace_names
from stepscope.viewer.store.cache_folder import has_index
from stepscope.viewer.store.parquet.store_marker import means_store

if TYPE_CHECKING:
    from stepscope.viewer.store.trace import Trace


def open_in_background(path: TracePath, get_ready: Callable[[], None], ask: Callable[[Trace], None]) -> Trace:
    """Open a trace while `get_ready` runs; `ask` queries what is shown first meanwhile, which keeps the findings."""
    names = trace_names(path)
    if has_index(names):  # it is usually current
        with ThreadPoolExecutor(1) as thread:
            opening = thread.submit(_open_and_ask, path, ask)
            get_ready()
            return opening.result()
    # Standard input can be read only once, and a STORE opens fast.
    if STDIN in names or means_store(names) or not hasattr(os, "fork"):
        get_ready()
    else:
        _build_in_background(path, get_ready, ask)
    return _open(path)


def _build_in_background(path: TracePath, get_ready: Callable[[], None], ask: Callable[[Trace], None]) -> None:
    """Build the index in a child process. Its errors are ignored, because opening the trace raises them again."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        try:
            _open_and_ask(path, ask).close()
        finally:
            os._exit(0)
    try:
        get_ready()
    finally:
        os.waitpid(child, 0)


def _open_and_ask(path: TracePath, ask: Callable[[Trace], None]) -> Trace:
    trace = _open(path)
    ask(trace)
    return trace


def _open(path: TracePath) -> Trace:
    from stepscope.viewer.store.open import open_trace

    return open_trace(path)
