"""Keeps the mismatches of memory-step checks: each one is reported once, and its repeats are counted."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any, NamedTuple
from weakref import ref

from stepscope.tracer.runtime.lifetimes.holders import describe_holders, find_holders
from stepscope.tracer.schema.memory import MemoryStepMismatch, MismatchKind

MOST_TOLD = 10_000
_DESCRIPTIONS: dict[MismatchKind, str] = {
    "missing_death": "should have been freed and is alive",
    "unexpected_death": "was freed and should be alive",
    "missing_allocation": "should have been allocated and was not",
    "unexpected_allocation": "was allocated and should not have been",
}


class StepMismatch(NamedTuple):
    kind: MismatchKind
    name: str
    storage_bytes: int | None
    reference: ref[Any] | None
    storage: str
    """First name of the storage."""


class CheckedStep(NamedTuple):
    """The place of a check in generated code."""

    graph: int | None
    """Number of the graph; None if the code is not a recorded wrapper."""
    site: int | None
    """Last launch site before the check; None if it is unknown."""
    file: str
    line: int
    is_final_step: bool


@dataclass
class _Again:
    """A mismatch that was found again since it was reported."""

    place: CheckedStep
    call: int | None
    found: StepMismatch
    times: int = 0


class Reports:
    """The mismatches that were reported in one log."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Forget the mismatches that were reported in another log: of an earlier recording or the parent process."""
        self._lock = Lock()
        self._told: set[tuple[CheckedStep, MismatchKind, str]] = set()
        self._again: dict[tuple[CheckedStep, MismatchKind, str], _Again] = {}
        self.is_full = False
        """Whether new mismatches are ignored because there are too many."""

    def add(self, place: CheckedStep, call: int | None, found: Sequence[StepMismatch]) -> list[StepMismatch]:
        """Return the mismatches that are found for the first time, and count the others."""
        new = []
        with self._lock:
            for one in found:
                key = place._replace(site=None), one.kind, one.name
                if key in self._told:
                    self._again.setdefault(key, _Again(place, call, one._replace(reference=None))).times += 1
                elif len(self._told) < MOST_TOLD:
                    self._told.add(key)
                    new.append(one)
                else:
                    self.is_full = True
        return new

    def take_repeats(self) -> list[MemoryStepMismatch]:
        """Return records of the mismatches that were found again since the last call."""
        with self._lock:
            again, self._again = self._again, {}
        by_place: defaultdict[CheckedStep, list[_Again]] = defaultdict(list)
        for entry in again.values():
            by_place[entry.place].append(entry)
        return [
            to_record(
                place,
                entries[0].call,
                [entry.found for entry in entries],
                [[] for _ in entries],
                [entry.times for entry in entries],
            )
            for place, entries in by_place.items()
        ]


reports = Reports()
"""The mismatches of the current recording, or those that were logged without one."""


def to_record(
    place: CheckedStep,
    call: int | None,
    found: Sequence[StepMismatch],
    holders: list[list[str]],
    times: list[int] | None = None,
) -> MemoryStepMismatch:
    """Return the record of `found`; `holders` and `times` have an entry for each; without `times` all are 1."""
    return MemoryStepMismatch(
        graph=place.graph,
        call=call,
        file=place.file,
        line=place.line,
        is_final_step=place.is_final_step,
        kind=[one.kind for one in found],
        buffer=[one.name for one in found],
        storage_bytes=[one.storage_bytes for one in found],
        holders=holders,
        site=place.site,
        storage=[one.storage for one in found],
        times=times or [1 for _ in found],
    )


def holders_of(found: Sequence[StepMismatch]) -> list[list[str]]:
    """Return the holders of the storages that should be dead, with an entry for each of `found`."""
    held = [one.reference() if one.reference is not None else None for one in found]
    searched = [storage for storage in held if storage is not None]
    words = iter(find_holders(searched)) if searched else iter(())
    return [next(words) if storage is not None else [] for storage in held]


def describe_mismatches(found: Sequence[StepMismatch], holders: Sequence[list[str]]) -> str:
    """Describe `found` for the user of the program; `holders` has an entry per mismatch."""
    parts = []
    for one, held in zip(found, holders, strict=True):
        size = f" ({one.storage_bytes:,} bytes)" if one.storage_bytes is not None else ""
        parts.append(f"{one.name}{size} {_DESCRIPTIONS[one.kind]}{describe_holders(held)}")
    return "; ".join(parts)
