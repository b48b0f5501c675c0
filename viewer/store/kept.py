"""Keeps results up to a number of bytes; threads that ask for the same one at the same time compute it once."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Generic, TypeVar

T = TypeVar("T")


class Together(Generic[T]):
    """Computes each result once for all threads that ask for it at the same time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._under_way: dict[Hashable, Future[T]] = {}

    def get(self, key: Hashable, find: Callable[[], T], make: Callable[[], T], keep: Callable[[T], object]) -> T:
        """Return what `find` returns, or if that raises KeyError, the result of `make`, which is given to `keep`. What
        `make` raises is raised for all who asked meanwhile. It must not ask for the same key."""
        with self._lock:
            try:
                return find()
            except KeyError:
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
            keep(made)
        own.set_result(made)
        return made


class Kept(Generic[T]):
    """Results by key, which must not be modified. Those that nobody has asked for longest are dropped first."""

    def __init__(self, most_bytes: int, size: Callable[[Hashable, T], int]) -> None:
        """`size` returns the bytes of a key and its result; what is above half of `most_bytes` is not kept."""
        self._most_bytes, self._size = most_bytes, size
        self._lock = threading.Lock()
        self._results: OrderedDict[Hashable, T] = OrderedDict()
        self._sizes: dict[Hashable, int] = {}
        self._together: Together[T] = Together()
        self._bytes = 0

    def find(self, key: Hashable) -> T | None:
        """Return a result that is kept, or None."""
        try:
            return self._find(key)
        except KeyError:
            return None

    def get(self, key: Hashable, make: Callable[[], T], is_lasting: Callable[[T], bool] = lambda _: True) -> T:
        """Return the result of `make` for a key, kept if it `is_lasting`. What `make` raises is raised for all who
        asked meanwhile, and is not kept."""

        def keep(made: T) -> None:
            if is_lasting(made):
                self._keep(key, made)

        return self._together.get(key, lambda: self._find(key), make, keep)

    def _find(self, key: Hashable) -> T:
        with self._lock:
            found = self._results[key]
            self._results.move_to_end(key)
            return found

    def _keep(self, key: Hashable, made: T) -> None:
        size = self._size(key, made)
        if size > self._most_bytes // 2:
            return
        with self._lock:
            self._results[key], self._sizes[key] = made, size
            self._bytes += size
            while self._bytes > self._most_bytes:
                oldest, _ = self._results.popitem(last=False)
                self._bytes -= self._sizes.pop(oldest)
