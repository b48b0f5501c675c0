"""Finds the compile, the attempt and the graphs that an address names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stepscope.viewer.compiles.queries.compiles import compile_detail
from stepscope.viewer.compiles.queries.stages import Attempt, InductorGraph
from stepscope.viewer.compiles.rows import CompileDetail
from stepscope.viewer.graphs.queries.graphs import graphs_of_compile
from stepscope.viewer.overview.queries.runs import log_or_first
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.web.addresses import MovedTo, NotThere, Request, unslug
from stepscope.viewer.web.parameters import number

ATTEMPT = number("attempt", "The attempt of a compile, counted from 0; without it the last one.")


@dataclass(frozen=True)
class ProvenanceGraph:
    """A graph that Inductor compiled."""

    number: int
    label: str
    aot_id: str | None
    attempt: int


def chosen_compile(trace: Trace, request: Request) -> CompileDetail:
    compile_id = unslug(request.path["compile_id"]).replace("_", "/")
    log = log_or_first(trace, request.optional_id("log"))
    detail = compile_detail(trace, log, compile_id)
    if detail is None:
        graphs = graphs_of_compile(trace, log, compile_id)
        if graphs:  # the graph was compiled before the log began, or the compile's records are damaged
            raise MovedTo(f"/graphs/{graphs[0].graph}")
        raise NotThere(f"Log {log} of this trace contains no compile {compile_id}.")
    return detail


def chosen_attempt(request: Request, attempts: Sequence[Attempt]) -> int | None:
    attempt = request.optional_id("attempt")
    if attempt is not None and attempt >= len(attempts):
        raise NotThere(f"This compile has {len(attempts)} attempts, counted from 0: there is no attempt {attempt}.")
    return attempt


def inductor_graphs(units: Sequence[InductorGraph], attempt: int | None) -> list[ProvenanceGraph]:
    return [
        ProvenanceGraph(number, unit.label, unit.aot_id, unit.attempt)
        for number, unit in enumerate(units)
        if attempt in (None, unit.attempt)
    ]
