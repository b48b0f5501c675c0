"""Queries the tensors outside of compiled code of which more and more stay alive."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

_LISTS = "step", "ns", "tensors", "with_graph", "storage_bytes"
_LOOKS = 3
_MOST = 100
"""Number of rows that are read; the recorder writes a few per log."""
_KEPT = f"""
    WITH kept AS (
        SELECT log, time_unix_ns, {", ".join(f"CAST({name} AS BIGINT[]) AS {name}" for name in _LISTS)},
               dtype, sizes, device, holder, hits, lost_keys, most_elements, file, line,
               cycle_is_collected,
               row_number() OVER (ORDER BY log, time_unix_ns, holder, sizes) AS number
        FROM kept_tensors WHERE {" AND ".join(f"json_array_length({name}) = {_LOOKS}" for name in _LISTS)}
        ORDER BY number LIMIT {_MOST}
    ),
    looks AS (SELECT number, log, unnest(ns) AS at_ns FROM kept),
    followed AS (SELECT log, start_ns, step FROM calls WHERE log IN (SELECT log FROM kept)),
    backward AS (
        SELECT c.log, c.start_ns FROM calls c JOIN graphs g USING (graph)
        WHERE g.phase = 'backward' AND c.log IN (SELECT log FROM kept)
    ),
    found AS (
        SELECT l.number, list(f.step ORDER BY at_ns) AS calls_step, list(b.start_ns ORDER BY at_ns) AS backward_ns
        FROM looks l
        ASOF LEFT JOIN followed f ON f.log = l.log AND l.at_ns > f.start_ns
        ASOF LEFT JOIN backward b ON b.log = l.log AND l.at_ns >= b.start_ns
        GROUP BY l.number
    )
    SELECT kept.* EXCLUDE (number), calls_step, backward_ns FROM kept JOIN found USING (number) ORDER BY number
"""


class KeptTensor(NamedTuple):
    """Tensors of one form, with the numbers of each of three looks."""

    log: int
    time_unix_ns: int
    step: list[int]
    ns: list[int]
    tensors: list[int]
    with_graph: list[int]
    storage_bytes: list[int]
    dtype: str
    sizes: str
    """JSON list."""
    device: str
    holder: str
    hits: int | None
    lost_keys: int | None
    most_elements: int | None
    file: str | None
    line: int | None
    cycle_is_collected: bool | None
    """None if the holder is no reference cycle of each tensor."""

    calls_step: list[int]
    """The step of the last call before each look, as the whole log counts steps."""
    backward_ns: list[int | None]
    """The start of the last compiled backward pass before each look."""

    @property
    def added(self) -> int:
        """Number of tensors that were added from the first look to the last one."""
        return self.tensors[-1] - self.tensors[0]

    @property
    def added_bytes(self) -> int:
        return self.storage_bytes[-1] - self.storage_bytes[0]

    @property
    def added_with_graph(self) -> int:
        return self.with_graph[-1] - self.with_graph[0]

    @property
    def has_backward_passes(self) -> bool:
        """Whether compiled backward passes ran between each look and the next one."""
        began = zip(self.ns, self.backward_ns[1:], strict=False)
        return all(backward is not None and backward >= before for before, backward in began)


def kept_tensors(trace: Trace) -> list[KeptTensor]:
    """Return the tensors. What was counted in fewer steps than looks is left out: the recorder takes the calls before
    the first step of an optimizer for steps."""
    found = sql.records(KeptTensor, trace, _KEPT) if sql.has_rows(trace, "kept_tensors") else []
    return [one for one in found if _is_of_several_steps(one.calls_step)]


def _is_of_several_steps(steps: Sequence[int | None]) -> bool:
    return all(before is not None and after is not None and before < after for before, after in pairwise(steps))
