"""Tells those who wait how far the reading of logs and the writing of their index are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

Watcher = Callable[[str, int, int], None]
"""Called with what is being done, how much of it is done, and how much there is to do."""
_watchers: list[Watcher] = []


@contextmanager
def watched(watcher: Watcher) -> Iterator[None]:
    """Call `watcher` from time to time while the block runs."""
    _watchers.append(watcher)
    try:
        yield
    finally:
        _watchers.remove(watcher)


@contextmanager
def unwatched() -> Iterator[None]:
    """Tell nobody while the block runs, because it is a part of something that says itself how far it is."""
    watchers = _watchers.copy()
    _watchers.clear()
    try:
        yield
    finally:
        _watchers.extend(watchers)


def tell(what: str, done: int, total: int) -> None:
    for watcher in _watchers:
        watcher(what, done, total)
