"""Launch sites -> FX nodes -> lines of model source.

Stack traces come from Inductor's own provenance (`inductor_provenance_tracking_kernel_stack_traces`, written
after a wrapper is loaded, on cold and warm caches; torch/_inductor/compile_fx.py, codecache.py), and where a
site has none, from the line map of the wrapper (`PyCodeCache.stack_frames_for_code`).
"""

from __future__ import annotations

import linecache
import re
from collections.abc import Mapping, Sequence
from typing import Any

from stepscope.tracer.inductor import compat
from stepscope.tracer.inductor.codegen_facts import LaunchFacts
from stepscope.tracer.records import Frame, Graph, LaunchSite, Provenance, SiteProvenance

STACK_TRACES = "inductor_provenance_tracking_kernel_stack_traces"
FRAME = re.compile(r'^ *File "([^"\n]*)", line (\d+), in ([^\n]*)(?:\n(?! *File ")([^\n]*))?', re.M)


class _Frames:
    """Frames by number, each once."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []
        self._numbers: dict[Frame, int] = {}

    def number(self, frame: Frame) -> int:
        if frame not in self._numbers:
            self._numbers[frame] = len(self.frames)
            self.frames.append(frame)
        return self._numbers[frame]

    def stack(self, frames: Sequence[Frame]) -> list[int]:
        return [self.number(frame) for frame in frames]


def from_stack_traces(
    graph: Graph, traces: Mapping[str, Sequence[str]], facts: Mapping[str, LaunchFacts], path: str
) -> Provenance:
    """`traces` and `facts` by debug handle; `path` is the wrapper's file, for sites without a handle."""
    table = _Frames()
    sites = []
    for site in graph.sites:
        stacks = [parse_stack(text) for text in traces.get(site.handle or "", ())] or [line_map_stack(path, site)]
        numbers = [table.stack(stack) for stack in stacks if stack]
        known = facts.get(site.handle or "")
        nodes, modules = (known.fx_nodes, known.modules) if known else ([], [])
        if numbers or nodes or modules:
            sites.append(SiteProvenance(site.site, numbers, nodes, modules))
    return Provenance(graph.graph, table.frames, sites)


def parse_stack(text: str) -> list[Frame]:
    """The frames of a stack trace as text, outermost first."""
    return [Frame(f, int(line), name.strip(), (code or "").strip()) for f, line, name, code in FRAME.findall(text)]


def line_map_stack(path: str, site: LaunchSite) -> list[Frame]:
    """The stack that Inductor's line map gives for a launch statement; empty when it has none."""
    codecache = compat.loaded("torch._inductor.codecache", "PyCodeCache")
    if codecache is None:
        return []
    entries: list[dict[str, Any]] | None = codecache.PyCodeCache.stack_frames_for_code(path, site.line)
    return [
        Frame(e["filename"], int(e["line"]), e["name"], linecache.getline(e["filename"], int(e["line"])).strip())
        for e in entries or []
    ]
