"""Compiles that belong to the recorder and not to the program, and of which nothing is recorded."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class _Hidden(threading.local):
    is_on = False


_hidden = _Hidden()


def is_hidden() -> bool:
    """Return whether this thread compiles for the recorder."""
    return _hidden.is_on


@contextmanager
def hidden() -> Iterator[None]:
    _hidden.is_on = True
    try:
        yield
    finally:
        _hidden.is_on = False
