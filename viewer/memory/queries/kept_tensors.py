"""Queries the tensors outside of compiled code of which more and more stay alive."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

_LISTS = "step", "ns", "tensors", "with_graph", "storage_bytes"
_LOOKS = 3
_KEPT = f"""
    SELECT log, time_unix_ns, {", ".join(f"CAST({name} AS BIGINT[]) AS {name}" for name in _LISTS)},
           dtype, sizes, device, holder, hits, lost_keys, most_elements, file, line
    FROM kept_tensors WHERE {" AND ".join(f"json_array_length({name}) = {_LOOKS}" for name in _LISTS)}
    ORDER BY log, time_unix_ns, holder, sizes
"""
_BEFORE = "SELECT max(step) FROM calls WHERE log = ? AND start_ns < ?"
_BACKWARD = """
    SELECT count(*) FROM calls c JOIN graphs g USING (graph)
    WHERE c.log = ? AND g.phase = 'backward' AND c.start_ns BETWEEN ? AND ?
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


def kept_tensors(trace: Trace) -> list[tuple[KeptTensor, int]]:
    """Return the tensors, each with the number of steps from the first look to the last one. What was counted in fewer
    steps than looks is left out: the recorder takes the calls before the first step of an optimizer for steps."""
    found = []
    for one in sql.records(KeptTensor, trace, _KEPT):
        steps = [sql.number(trace, _BEFORE, [one.log, ns]) for ns in one.ns]
        if None not in steps and all(before < after for before, after in pairwise(steps)):
            found.append((one, steps[-1] - steps[0]))
    return found


def has_backward_passes(trace: Trace, one: KeptTensor) -> bool:
    """Return whether compiled backward passes ran between each look and the next one."""
    return all(sql.number(trace, _BACKWARD, [one.log, *between]) for between in pairwise(one.ns))
