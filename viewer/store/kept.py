"""Keeps results up to a number of bytes; threads that ask for the same one at the same time compute it once."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Generic, TypeVar

T = TypeVar("T")


class Kept(Generic[T]):
    """Results by key, which must not be modified. Those that nobody has asked for longest are dropped first."""

    def __init__(self, most_bytes: int, size: Callable[[Hashable, T], int]) -> None:
        """`size` returns the bytes of a key and its result; what is above half of `most_bytes` is not kept."""
        self._most_bytes, self._size = most_bytes, size
        self._lock = threading.Lock()
        self._results: OrderedDict[Hashable, T] = OrderedDict()
        self._sizes: dict[Hashable, int] = {}
        self._under_way: dict[Hashable, Future[T]] = {}
        self._bytes = 0

    def find(self, key: Hashable) -> T | None:
        """Return a result that is kept, or None."""
        with self._lock:
            found = self._results.get(key)
            if found is not None:
                self._results.move_to_end(key)
            return found

    def get(self, key: Hashable, make: Callable[[], T], is_lasting: Callable[[T], bool] = lambda _: True) -> T:
        """Return the result of `make` for a key, kept if it `is_lasting`. What `make` raises is raised for all who
        asked meanwhile, and is not kept."""
        with self._lock:
            if (found := self._results.get(key)) is not None:
                self._results.move_to_end(key)
                return found
            waiting = self._under_way.get(key)
            own = self._under_way[key] = Future[T]() if waiting is None else waiting
        if waiting is not None:
            return waiting.result()
        try:
            made = make()
        except BaseException as error:
            with self._lock:
                del self._under_way[key]
            own.set_exception(error)
            raise
        with self._lock:
            del self._under_way[key]
            if is_lasting(made):
                self._keep(key, made)
        own.set_result(made)
        return made

    def _keep(self, key: Hashable, made: T) -> None:
        size = self._size(key, made)
        if size > self._most_bytes // 2:
            return
        self._results[key], self._sizes[key] = made, size
        self._bytes += size
        while self._bytes > self._most_bytes:
            oldest, _ = self._results.popitem(last=False)
            self._bytes -= self._sizes.pop(oldest)
