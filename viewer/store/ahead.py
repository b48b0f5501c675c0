"""Builds an index in a second process while this one gets ready to show it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from viewer.ingest.sources import STDIN, TracePath, trace_names
from viewer.store.mark import means_store
from viewer.store.places import beside


@contextmanager
def index_ahead(path: TracePath) -> Iterator[None]:
    """While the block runs, the index of `path` is built on another core; afterwards `open_trace` finds it.

    What goes wrong there goes wrong again, and is said, where the trace is opened. Does nothing for standard
    input, for a STORE, where an index is there, which mostly is current, and where a process cannot be forked.
    """
    names = trace_names(path)
    index = beside(names)
    is_there = index is not None and index.is_file()
    if STDIN in names or is_there or means_store(names) or not hasattr(os, "fork"):
        yield
        return
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        _build_and_leave(path)
    try:
        yield
    finally:
        os.waitpid(child, 0)


def _build_and_leave(path: TracePath) -> None:
    try:
        from viewer.store.open import open_trace

        open_trace(path).close()
    finally:
        os._exit(0)
