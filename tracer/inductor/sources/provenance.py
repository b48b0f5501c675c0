"""Launch sites -> FX nodes -> lines of model source.

Stack traces come from Inductor's own provenance (`inductor_provenance_tracking_kernel_stack_traces`, written
after a wrapper is loaded, on cold and warm caches; torch/_inductor/compile_fx.py, codecache.py), and where a
site has none, from the line map of the wrapper (`PyCodeCache.linemaps`). What a cache has brought along is of the
program that was compiled: `todays_lines` says which lines it is of now.
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
from stepscope.tracer.schema.records import ChangedLine, Frame, Graph, LaunchSite, Provenance, SiteProvenance

STACK_TRACES = "inductor_provenance_tracking_kernel_stack_traces"
IMPORTED_UNIX_NS = time.time_ns()


class _Frames:
    """Frames by number, each once."""

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
    """Of a graph that this process has compiled. `traces` and `facts` by debug handle; `path` is the wrapper's file,
    for sites without a handle."""
    table = _Frames()
    found = _stacks(graph, traces, path)
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
    """Of a graph that may have been compiled from another text. `captured`: what Dynamo captured for it in this
    process; `compiled`: what is known of the compile that made it."""
    found = _stacks(graph, traces, path)
    lines = TodaysLines(captured, compiled, [stack for of_site in found.values() for stack in of_site])
    table = _Frames()
    stacks = {site: [table.stack(_todays(stack, lines, table)) for stack in of_site] for site, of_site in found.items()}
    sites = _sites(graph, stacks, facts, captured)
    changed = [table.changed[number] for number in sorted(table.changed)]
    when = (compiled.unix_ns if compiled else _written_before(path)) if changed else None
    return Provenance(graph.graph, table.frames, sites, changed, when)


def _written_before(path: str) -> int | None:
    """When the wrapper was written, unless that was in this process: a cache may have brought it along."""
    try:
        written_ns = os.stat(path).st_mtime_ns
    except OSError:
        return None
    return written_ns if written_ns < IMPORTED_UNIX_NS else None


def _todays(before: Stack, lines: TodaysLines, table: _Frames) -> Stack:
    """The stack of this run, else the one as compiled; what reads otherwise is marked."""
    now = lines.now(before)
    if now is None:
        for frame in before:
            if not lines.stands(frame):
                table.mark(frame, None)
        return before
    if now and before and now[-1].code != before[-1].code:
        table.mark(now[-1], before[-1])
    return now


def _stacks(graph: Graph, traces: Mapping[str, Sequence[str]], path: str) -> dict[int, list[Stack]]:
    """By site, as they came with the graph."""
    found = {}
    for site in graph.sites:
        texts = traces.get(site.handle or "") or [line_map_stack(path, site)]
        found[site.site] = [stack for text in texts if (stack := parse_stack(text))]
    return found


def _sites(
    graph: Graph, stacks: Mapping[int, list[list[int]]], facts: Mapping[str, LaunchFacts], captured: Captured | None
) -> list[SiteProvenance]:
    sites = []
    for site in graph.sites:
        found = [list(stack) for stack in dict.fromkeys(map(tuple, stacks[site.site])) if stack]
        known = facts.get(site.handle or "")
        nodes, modules = (known.fx_nodes, known.modules) if known else ([], [])
        if captured is not None:  # the cache may have them from another program
            modules = [module for module in modules if module in captured.modules]
        if found or nodes or modules:
            sites.append(SiteProvenance(site.site, found, nodes, modules))
    return sites


def line_map_stack(path: str, site: LaunchSite) -> str:
    """The stack trace that Inductor's line map has for a launch statement; empty when it has none."""
    codecache = compat.loaded("torch._inductor.codecache", "PyCodeCache")
    lines, stacks = (codecache.PyCodeCache.linemaps.get(path) if codecache else None) or ([], [])
    place = bisect_right(lines, site.line)
    return str(stacks[place - 1] or "") if place else ""
