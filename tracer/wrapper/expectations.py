"""Computes when the storages of a wrapper should die, according to its statements and to the schedule.

The schedule is about buffers (torch/_inductor/memory.py, `compute_memory_timeline`); in the wrapper several buffers may
share memory (reuse, views, in-place), so a storage should live as long as the last buffer in it. Storages in branches,
in loops and in lists for a partition have no expectation.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from stepscope.tracer.schema.graphs import LaunchSite, MemoryStatement
from stepscope.tracer.schema.memory import SchedulerMemory
from stepscope.tracer.wrapper.parsed import LaunchStatement, WrapperSource, wrapper_functions


@dataclass(frozen=True)
class Expected:
    """The expectation for one storage. Positions are those of `schema.memory`; None if it outlives the call."""

    name: str
    dies: int | None
    """Position at which the wrapper's statements release the storage."""
    is_scheduled: bool
    """Whether the schedule contains every buffer in this memory."""
    scheduled: int | None
    """Position at which the schedule frees the storage."""


@dataclass(frozen=True)
class Unscheduled:
    """The buffers that only the wrapper or only the schedule allocates."""

    missing: tuple[tuple[str, int], ...] = ()
    """Scheduled names that no statement of the wrapper binds, and their bytes."""
    extra: tuple[str, ...] = ()
    """Allocated names that are not in the schedule."""


@dataclass(frozen=True)
class Expectations:
    """The expectations for the storages of one function of a wrapper."""

    storages: tuple[Expected, ...]
    allocations: Unscheduled
    inputs: Mapping[str, int] = field(default_factory=dict)
    """Inputs that the function may free, with the position at which its statements release each."""


@dataclass(eq=False)
class _Root:
    """A storage with its first name, the names that refer to it now, and all names that it ever had."""

    name: str
    holds: set[str] = field(default_factory=set)
    names: list[str] = field(default_factory=list)
    is_known: bool = True
    dies: int | None = None


def expected_lifetimes(
    source: WrapperSource, sites: Sequence[LaunchSite], schedule: SchedulerMemory | None
) -> list[Expectations]:
    """Return the expectations for the storages of each function of `source`.

    `sites` are its launch sites with their scheduler nodes; `schedule` is that of the graph. If it contains all buffers
    of a storage, the expectation has its position besides the wrapper's.
    """
    freeable = _freeable(schedule)
    result = []
    for name, function in wrapper_functions(source.tree):
        follower = _Follower(source, freeable)
        follower.block(function.body)
        ends = (
            _scheduled_ends([sites[n] for n in follower.sites], schedule)
            if schedule and name.split(".")[-1] == "call"
            else {}
        )
        storages = tuple(_expected(root, ends, len(follower.sites)) for root in follower.made if root.is_known)
        unscheduled = _unscheduled(follower, schedule) if schedule and ends and not follower.branches else Unscheduled()
        inputs = {root.name: root.dies for root in follower.given if root.is_known and root.dies is not None}
        result.append(Expectations(storages, unscheduled, inputs))
    return result


def _freeable(schedule: SchedulerMemory | None) -> list[str]:
    """Return the inputs that the graph may free."""
    buffers = schedule.buffers if schedule else None
    return [name for name, role in zip(buffers.name, buffers.role, strict=True) if role == "input"] if buffers else []


def _unscheduled(follower: _Follower, schedule: SchedulerMemory) -> Unscheduled:
    buffers = schedule.buffers
    made = zip(buffers.name, buffers.alloc_bytes, buffers.role, strict=True)
    known = set(buffers.name)
    return Unscheduled(
        tuple(
            (name, size)
            for name, size, role in made
            if size and role in ("temporary", "output") and name not in follower.names
        ),
        tuple(
            root.name
            for root in follower.made
            if root.name.startswith("buf") and root.is_known and known.isdisjoint(root.names)
        ),
    )


def _expected(root: _Root, ends: Mapping[str, int | None], launches: int) -> Expected:
    known = [ends[name] for name in root.names if name in ends]
    is_whole = bool(known) and all(name in ends for name in root.names if name.startswith("buf"))
    last = None if None in known else max((end for end in known if end is not None), default=None)
    if root.dies is None and last == launches:
        last = None  # storages that the last launch uses are freed by the return
    return Expected(root.name, root.dies, is_whole, last if is_whole else None)


def _scheduled_ends(sites: Sequence[LaunchSite], schedule: SchedulerMemory) -> dict[str, int | None]:
    """Return the position of each buffer's death, None if it outlives the graph; empty if a launch has no nodes."""
    if any(site.snodes is None for site in sites):
        return {}
    position = {snode: place + 1 for place, site in enumerate(sites) for snode in site.snodes or ()}
    launched = (max((position.get(part, 0) for part in parts), default=0) for parts in schedule.members)
    by_node = list(accumulate(launched, max))  # a node without its own launch is placed after those before it
    buffers = schedule.buffers
    ends: dict[str, int | None] = {}
    for name, last, role in zip(buffers.name, buffers.last_snode, buffers.role, strict=True):
        if role == "removed":
            continue
        if last < 0:
            ends[name] = None
        elif last < len(by_node):
            ends[name] = by_node[last]
    return ends


class _Follower:
    def __init__(self, source: WrapperSource, inputs: Iterable[str]) -> None:
        self._events = source.events
        self.given = [_Root(name, {name}, [name]) for name in inputs]
        self._roots = {root.name: root for root in self.given}
        self._members: dict[str, dict[str, _Root]] = {}
        """Members of names that refer to several tensors."""
        self.made: list[_Root] = []
        self.sites: list[int] = []
        self.names: set[str] = set()
        """Names that were bound anywhere in the function."""
        self.branches = False

    def block(self, body: Iterable[ast.stmt]) -> None:
        for statement in body:
            for event in self._events.get(statement, ()):
                if isinstance(event, LaunchStatement):
                    self._launch(event)
                else:
                    self._memory(event, statement)
            inner = [part for name in ("body", "orelse", "finalbody") for part in getattr(statement, name, None) or ()]
            if inner and isinstance(statement, ast.With):
                self.block(inner)
            elif inner:
                self._branches()

    def _branches(self) -> None:
        """Drop the expectations for live storages, and follow no later statements, whose positions are unknown."""
        self.branches = True
        for root in (*self.made, *self.given):
            root.is_known &= not root.holds
        self._roots.clear()
        self._events = {}

    def _make(self, name: str) -> _Root:
        self._release(name)
        root = _Root(name, {name}, [name])
        self._roots[name] = root
        self.made.append(root)
        return root

    def _launch(self, launch: LaunchStatement) -> None:
        self.sites.append(launch.site.site)
        if launch.site.kind in ("subgraph", "collective"):  # they may keep their arguments
            for argument in launch.site.arguments:
                self._forget(argument.buffer)
        for name in launch.bound:
            self.names.add(name)
            self._release(name)
            if launch.view_of is not None:
                self._share(name, launch.site.arguments[launch.view_of].buffer)
            elif launch.site.kind != "subgraph":
                self._make(name)

    def _memory(self, event: MemoryStatement, statement: ast.stmt) -> None:
        name, of = event.buffer, event.of
        self.names.add(name)
        if event.event in ("allocate", "pool"):
            self._make(name)
        elif event.event in ("reuse", "alias", "pool_member"):
            self._share(name, of)
        elif event.event == "item" and of is not None and isinstance(statement, ast.Assign):
            self._item(name, of, ast.unparse(statement.value))
        elif event.event == "hold":
            self._forget(of)
        elif event.event in ("free", "drop"):
            self._release(name)

    def _share(self, name: str, of: str | None) -> None:
        root = self._roots.get(of or "")
        if root is None:
            self._release(name)
        elif root is not self._roots.get(name):
            self._release(name)
            root.holds.add(name)
            root.names.append(name)
            self._roots[name] = root

    def _item(self, name: str, of: str, text: str) -> None:
        """Follow ``buf7 = buf6[0]``, where a launch returned several tensors: both `of` and `name` refer to `text`."""
        members = self._members.setdefault(of, {})
        root = members.get(text)
        if root is None:
            root = members[text] = _Root(text, {of}, [of])
            self.made.append(root)
        self._release(name)
        root.holds.add(name)
        root.names.append(name)
        self._roots[name] = root

    def _release(self, name: str) -> None:
        roots = [*self._members.pop(name, {}).values()]
        if name in self._roots:
            roots.append(self._roots.pop(name))
        for root in roots:
            root.holds.discard(name)
            if not root.holds:
                root.dies = len(self.sites)

    def _forget(self, name: str | None) -> None:
        root = self._roots.get(name or "")
        if root is not None:
            root.is_known = False
