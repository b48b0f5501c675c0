"""The points of a wrapper at which tensors are read, and the queue of deferred reads."""

from __future__ import annotations

import ast
from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from stepscope.tracer.schema.values import Moment
from stepscope.tracer.wrapper.statements import names_in

MOST_AT_ONCE = 64
"""Maximum number of tensors that one point reads if reads are deferred."""
Side = Literal["before", "after"]


@dataclass(frozen=True)
class Read:
    site: int
    argument: int
    moment: Moment
    expression: ast.expr
    is_fixed: bool
    """Whether nothing about the tensor can vary from call to call, because the wrapper allocates it with constants."""
    is_checked: bool = False
    """Whether size and stride cannot vary, because the wrapper compares them with constants; the device may."""


@dataclass(frozen=True)
class ReadPoint:
    """The reads before or after one statement of a wrapper."""

    statement: ast.stmt
    place: Side
    reads: tuple[Read, ...]


class ReadQueue:
    """Gathers reads, if they may be deferred, until a statement would change what they read."""

    def __init__(self, points: list[ReadPoint], deferred: bool) -> None:
        """Create a queue that adds each point at which tensors are read to `points`."""
        self._points, self._deferred = points, deferred
        self._waiting: list[tuple[Read, object]] = []

    def add(self, read: Read, storage: object, statement: ast.stmt, place: Side) -> None:
        """Add a read of `storage`, to be done at `place` of `statement` unless reads are deferred."""
        if self._deferred and len(self._waiting) >= MOST_AT_ONCE:
            self.flush(statement, place)
        self._waiting.append((read, storage))
        if not self._deferred:
            self.flush(statement, place)

    def uses_name(self, name: str) -> bool:
        """Return whether a waiting read uses the variable `name`."""
        return any(name in names_in(read.expression) for read, _ in self._waiting)

    def uses_storage(self, storages: Collection[int]) -> bool:
        """Return whether a waiting read is of a storage with one of these `id`s."""
        return any(id(storage) in storages for _, storage in self._waiting)

    def flush(self, statement: ast.stmt, place: Side) -> None:
        """Do all waiting reads at `place` of `statement`."""
        reads = tuple(read for read, _ in self._waiting)
        self._waiting.clear()
        last = self._points[-1] if self._points else None
        if reads and last is not None and last.statement is statement and last.place == place:
            self._points[-1] = ReadPoint(statement, place, last.reads + reads)
        elif reads:
            self._points.append(ReadPoint(statement, place, reads))
