"""Maps launch sites to FX nodes and to lines of model source.

Stack traces come from Inductor's own provenance (`inductor_provenance_tracking_kernel_stack_traces`, written
after a wrapper is loaded, on cold and warm caches; torch/_inductor/compile_fx.py, codecache.py); if a site has none,
they come from the line map of the wrapper (`PyCodeCache.linemaps`). Traces from a cache have the lines of the program
that was compiled; `current_lines` maps them to the current ones.
"""

from __future__ import annotations

import os
import time
from bisect import bisect_right
from collections.abc import Mapping, Sequence

from stepscope.tracer.inductor import compat
from stepscope.tracer.inductor.codegen_facts import LaunchFacts
from stepscope.tracer.inductor.sources.current_lines import TodaysLines
from stepscope.tracer.inductor.sources.dynamo_graphs import Captured, CompiledLines, Stack, parse_stack
from stepscope.tracer.schema.graphs import ChangedLine, Graph, LaunchSite, Provenance, SiteProvenance
from stepscope.tracer.schema.process_ends import Frame

STACK_TRACES = "inductor_provenance_tracking_kernel_stack_traces"
_began_unix_ns = time.time_ns()
"""When this module was imported, or this process was forked."""


class _Frames:
    """The table of distinct frames, which stacks refer to by number."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []
        self.changed: dict[int, ChangedLine] = {}
        self._numbers: dict[Frame, int] = {}

    def number(self, frame: Frame) -> int:
        if frame not in self._numbers:
            self._numbers[frame] = len(self.frames)
            self.frames.append(frame)
        return self._numbers[frame]

    def stack(self, frames: Sequence[Frame]) -> list[int]:
        return [self.number(frame) for frame in frames]

    def mark(self, frame: Frame, was: Frame | None) -> None:
        number = self.number(frame)
        self.changed.setdefault(number, ChangedLine(number, was))


def as_compiled(
    graph: Graph, traces: Mapping[str, Sequence[str]], facts: Mapping[str, LaunchFacts], path: str
) -> Provenance:
    """Return the provenance of a graph that this process has compiled.

    `traces` and `facts` are keyed by debug handle; `path` is the wrapper's file, used for sites without a handle.
    """
    table = _Frames()
    found = _stacks(graph, traces, facts, path)
    stacks = {site: [table.stack(stack) for stack in of_site] for site, of_site in found.items()}
    return Provenance(graph.graph, table.frames, _sites(graph, stacks, facts, None))


def from_cache(
    graph: Graph,
    traces: Mapping[str, Sequence[str]],
    facts: Mapping[str, LaunchFacts],
    path: str,
    captured: Captured | None,
    compiled: CompiledLines | None,
) -> Provenance:
    """Return the provenance of a graph that may have been compiled from other source code.

    `captured` is Dynamo's graph in this process; `compiled` has the lines of the compile. Others as in `as_compiled`.
    """
    found = _stacks(graph, traces, facts, path)
    lines = TodaysLines(captured, compiled, [stack for of_site in found.values() for stack in of_site])
    table = _Frames()
    stacks = {site: [table.stack(_todays(stack, lines, table)) for stack in of_site] for site, of_site in found.items()}
    sites = _sites(graph, stacks, facts, captured)
    changed = [table.changed[number] for number in sorted(table.changed)]
    when = (compiled.unix_ns if compiled else _written_before(path)) if changed else None
    return Provenance(graph.graph, table.frames, sites, changed, when)


def _begin() -> None:
    global _began_unix_ns
    _began_unix_ns = time.time_ns()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin)


def _written_before(path: str) -> int | None:
    """Return when the wrapper was written, or None if that was after this process started or is unknown."""
    try:
        written_ns = os.stat(path).st_mtime_ns
    except OSError:
        return None
    return written_ns if written_ns < _began_unix_ns else None


def _todays(before: Stack, lines: TodaysLines, table: _Frames) -> Stack:
    """Return the stack of this run, or `before` if it is not found; mark lines whose text differs."""
    now = lines.now(before)
    if now is None:
        for frame in before:
            if not lines.stands(frame):
                table.mark(frame, None)
        return before
    if now and before and now[-1].code != before[-1].code:
        table.mark(now[-1], before[-1])
    return now


def _stacks(
    graph: Graph, traces: Mapping[str, Sequence[str]], facts: Mapping[str, LaunchFacts], path: str
) -> dict[int, list[Stack]]:
    """Return the stacks that came with the graph, by site."""
    found = {}
    for site in graph.sites:
        known = facts.get(site.handle or "")
        texts = [known.stack] if known and known.stack else traces.get(site.handle or "")
        texts = texts or [line_map_stack(path, site)]
        found[site.site] = [stack for text in texts if (stack := parse_stack(text))]
    return found


def _sites(
    graph: Graph, stacks: Mapping[int, list[list[int]]], facts: Mapping[str, LaunchFacts], captured: Captured | None
) -> list[SiteProvenance]:
    sites = []
    for site in graph.sites:
        found = [list(stack) for stack in dict.fromkeys(map(tuple, stacks[site.site])) if stack]
        known = facts.get(site.handle or "")
        nodes, modules, again = (known.fx_nodes, known.modules, known.recomputed) if known else ([], [], {})
        if captured is not None:  # those in the cache may be another program's
            modules = [module for module in modules if module in captured.modules]
        if found or nodes or modules:
            sites.append(SiteProvenance(site.site, found, nodes, modules, again))
    return sites


def line_map_stack(path: str, site: LaunchSite) -> str:
    """Return the stack trace of a launch statement in Inductor's line map; empty if there is none."""
    codecache = compat.loaded("torch._inductor.codecache", "PyCodeCache")
    lines, stacks = (codecache.PyCodeCache.linemaps.get(path) if codecache else None) or ([], [])
    place = bisect_right(lines, site.line)
    return str(stacks[place - 1] or "") if place else ""
