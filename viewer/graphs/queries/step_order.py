"""Keeps the calls and launch sites of the launches of a step as arrays in memory, in the order of the launches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stepscope.viewer.overview.queries.runs import KEPT_LOGS, step_row
from stepscope.viewer.store import sql
from stepscope.viewer.store.kept import Kept
from stepscope.viewer.store.trace import Trace

if TYPE_CHECKING:
    import numpy.typing as npt

KEPT_BYTES = 32 << 20
"""Maximum size of the arrays that an open trace keeps in memory: 12 bytes for each launch."""
_FIRST_BLOCK, _GROWTH = 256, 4
"""Number of launches that are looked at first, and by how much it grows."""
_LAUNCHES = "SELECT launch, call, site::INTEGER AS site FROM launches WHERE log = ? AND step = ?"


@dataclass(frozen=True)
class StepOrder:
    """The launches of a step, whose ids follow each other from `first`."""

    rank: int | None
    start_ns: int
    first: int
    call: npt.NDArray[Any]
    site: npt.NDArray[Any]

    @property
    def nbytes(self) -> int:
        return int(self.call.nbytes + self.site.nbytes)

    @property
    def last(self) -> int:
        return self.first + len(self.site) - 1

    def of_calls(self, calls: Sequence[int]) -> npt.NDArray[Any]:
        """Return the positions of the launches of some calls."""
        import numpy as np

        return np.flatnonzero(self.call == calls[0] if len(calls) == 1 else np.isin(self.call, calls))

    def neighbours(self, launch: int, sites: Sequence[int]) -> tuple[int | None, int | None]:
        """Return the last launch of these sites before `launch`, and the first one after it."""
        at = launch - self.first
        before, after = _first_of(self.site[:at][::-1], sites), _first_of(self.site[at + 1 :], sites)
        return None if before is None else launch - 1 - before, None if after is None else launch + 1 + after


def step_order(trace: Trace, log: int, step: int) -> StepOrder:
    """Return the launches of a step that has some; they are kept in memory while there is room."""
    return trace.once(_kept).get((log, step), lambda: _read(trace, log, step))


def _kept(trace: Trace) -> Kept[StepOrder]:
    return Kept(KEPT_BYTES, lambda _, found: found.nbytes)


def _read(trace: Trace, log: int, step: int) -> StepOrder:
    import numpy as np

    found = sql.columns(trace, _LAUNCHES, [log, step])
    order = np.argsort(found["launch"], kind="stable")
    row = step_row(trace, log, step)
    assert row is not None
    rank = trace.once(_rank, log, most=KEPT_LOGS)
    return StepOrder(rank, row.start_ns, int(found["launch"][order[0]]), found["call"][order], found["site"][order])


def _rank(trace: Trace, log: int) -> int | None:
    rank: int | None = sql.number(trace, "SELECT rank FROM logs WHERE log = ?", [log])
    return rank


def _first_of(sites: npt.NDArray[Any], wanted: Sequence[int]) -> int | None:
    """Return the position of the first of some sites; the nearest blocks are looked at first."""
    import numpy as np

    start, size = 0, _FIRST_BLOCK
    while start < len(sites):
        found = np.flatnonzero(np.isin(sites[start : start + size], wanted))
        if len(found):
            return start + int(found[0])
        start, size = start + size, size * _GROWTH
    return None
