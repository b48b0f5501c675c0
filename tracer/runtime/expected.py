"""Expected against actual lifetimes of the storages of a call."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from stepscope.tracer.records import LifetimeLayout, LifetimeMismatch, MismatchKind


class LifetimeError(RuntimeError):
    """A storage did not live as expected, and the recording was asked to raise then."""


@dataclass(frozen=True)
class Expected:
    """What is expected of one storage. Positions as in `stepscope.tracer.records`; None: it outlives the call."""

    name: str
    dies: int | None
    """By the wrapper's statements."""
    is_scheduled: bool
    """The schedule names every buffer that has this memory."""
    scheduled: int | None
    """By the schedule."""


@dataclass(frozen=True)
class Unscheduled:
    """Where the wrapper's text and the schedule do not allocate the same buffers."""

    missing: tuple[tuple[str, int], ...] = ()
    """Names that no statement of the wrapper binds, and their bytes."""
    extra: tuple[str, ...] = ()
    """Names that are allocated and that the schedule does not know."""


class Mismatch(NamedTuple):
    kind: MismatchKind
    buffer: str
    storage: int | None
    storage_bytes: int
    expected: int | None
    actual: int | None
    by: Literal["schedule", "wrapper"]


@dataclass(frozen=True)
class Expectations:
    """What is expected of a function of a wrapper."""

    storages: tuple[Expected, ...]
    allocations: Unscheduled
    inputs: Mapping[str, int] = field(default_factory=dict)
    """Inputs that the function may free, and where its statements let go of them."""


def compare(layout: LifetimeLayout, expectations: Expectations, owned: Collection[str] = ()) -> list[Mismatch]:
    """The storages of `layout` that did not live as expected; of those that nothing is expected of nothing is said.

    `owned`: inputs whose memory nobody else held when the call began. The others are their caller's to free.
    """
    return [
        *_allocations(layout, expectations.allocations),
        *_deaths(layout, expectations.storages),
        *_inputs(layout, {name: due for name, due in expectations.inputs.items() if name in owned}),
    ]


def _allocations(layout: LifetimeLayout, found: Unscheduled) -> Iterator[Mismatch]:
    for name, size in found.missing:
        yield Mismatch("missing_allocation", name, None, size, None, None, "schedule")
    for storage, name in enumerate(layout.name):
        if name in found.extra and layout.kind[storage] == "allocated":
            size, born = layout.storage_bytes[storage], layout.born[storage]
            yield Mismatch("unexpected_allocation", name, storage, size, None, born, "schedule")


def _deaths(layout: LifetimeLayout, expected: Sequence[Expected]) -> list[Mismatch]:
    by_name = {entry.name: entry for entry in expected}
    deaths = dict(zip(layout.dead, layout.dead_at, strict=True))
    return [
        found
        for storage, name in enumerate(layout.name)
        if layout.kind[storage] != "input" and layout.met_as[storage] is None and name in by_name
        for found in _death(layout, storage, by_name[name], deaths.get(storage))
    ]


def _inputs(layout: LifetimeLayout, dies: Mapping[str, int]) -> Iterator[Mismatch]:
    deaths = dict(zip(layout.dead, layout.dead_at, strict=True))
    for storage, name in enumerate(layout.name):
        if layout.kind[storage] == "input" and name in dies:
            expected = Expected(name, dies[name], is_scheduled=False, scheduled=None)
            yield from _death(layout, storage, expected, deaths.get(storage))


def _death(layout: LifetimeLayout, storage: int, entry: Expected, actual: int | None) -> Iterator[Mismatch]:
    by: Literal["schedule", "wrapper"] = "wrapper"
    due = entry.dies
    if actual == due and entry.is_scheduled:
        by, due = "schedule", entry.scheduled
    if actual == due:
        return
    is_late = due is not None and (actual is None or actual > due)
    kind: MismatchKind = "missing_death" if is_late else "unexpected_death"
    yield Mismatch(kind, layout.name[storage], storage, layout.storage_bytes[storage], due, actual, by)


def to_record(
    layout: LifetimeLayout, call: int, found: Sequence[Mismatch], holders: list[list[str]]
) -> LifetimeMismatch:
    """`call` is the first that followed `layout`; `holders` stand beside `found`."""
    return LifetimeMismatch(
        graph=layout.graph,
        layout=layout.layout,
        call=call,
        kind=[entry.kind for entry in found],
        buffer=[entry.buffer for entry in found],
        storage=[entry.storage for entry in found],
        storage_bytes=[entry.storage_bytes for entry in found],
        expected=[entry.expected for entry in found],
        actual=[entry.actual for entry in found],
        expected_by=[entry.by for entry in found],
        holders=holders,
    )


def in_words(found: Sequence[Mismatch]) -> str:
    """One line for the program's user."""
    first = found[0]
    if first.kind.endswith("allocation"):
        is_missing = first.kind == "missing_allocation"
        what = "is scheduled and never allocated" if is_missing else "is allocated and not scheduled"
        rest = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        return f"{first.buffer} ({first.storage_bytes} bytes) {what}{rest}"
    due = "after the call" if first.expected is None else f"after launch {first.expected - 1}"
    fate = "is still alive at its end" if first.actual is None else f"died after launch {first.actual - 1}"
    rest = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    return f"{first.buffer} ({first.storage_bytes} bytes) was to die {due}, and {fate}{rest}"
