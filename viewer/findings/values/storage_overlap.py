"""A launch writes an argument that shares memory with an argument that it reads, and the kernel reads elements that it
has already overwritten. The index expressions and loops of the generated source are evaluated until one element is
found that one iteration writes and a later iteration reads. For operators that are called by name, an `out` argument
must overlap an input; if it is another argument that they change, the finding is a warning, unless it is exactly the
argument that they read: a program may pass one tensor twice. If the graph of Dynamo shows that it passes two, of which
the compiler has made one, as by leaving out a `clone`, the finding is critical. Nothing is reported if an access of
either argument could not be analysed, is masked or depends on data, or if the finding hidden_alias names the operator
that gave one tensor the memory of the other. Kernels that the user wrote, and collectives, are not checked."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

from stepscope.viewer.findings.evidence import Evidence, Timed, attributes, grouped, program_name, rule_of
from stepscope.viewer.findings.values.describe import lines
from stepscope.viewer.findings.values.operations import fused, place, places, source_line
from stepscope.viewer.findings.values.overlap import do_overlap
from stepscope.viewer.graphs.queries.argument_facts import SharedMemory, View, shared_memory
from stepscope.viewer.graphs.queries.dynamo_nodes import Node
from stepscope.viewer.graphs.queries.graphs import code_of_graph, site_rows
from stepscope.viewer.graphs.queries.hidden_aliases import hidden_aliases
from stepscope.viewer.graphs.queries.kernel_code import cut
from stepscope.viewer.graphs.queries.separate_tensors import separate_tensor
from stepscope.viewer.graphs.rows import SiteRow
from stepscope.viewer.kernel_source.access_bounds import item_bytes
from stepscope.viewer.kernel_source.element_access import Accesses, ElementAccess
from stepscope.viewer.kernel_source.index_overlaps import meeting
from stepscope.viewer.kernel_source.kernel_access import accesses
from stepscope.viewer.overview.rows import Finding, ProofLink, Severity
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.text.formats import plural
from stepscope.viewer.values.queries.nonfinite import launch_place

SUMMARY = "A kernel writes memory that it reads"
TITLE_IS_MEASURED = True

_GENERATED = ("cpp", "triton")
_VIEW = re.compile(r"reinterpret_tensor\((\w+),")
_OF_VIEWS = ("argument", "name", "parameter", "dtype", "size", "stride", "offset")


@dataclass(frozen=True)
class _Verdict:
    pair: SharedMemory
    severity: Severity
    why: str
    read_at: list[str]
    written_at: list[str]
    separate: tuple[View, Node] | None = None
    """The argument for which the program passes a tensor of its own, and this tensor."""


def find(evidence: Evidence) -> list[Timed]:
    """Return one finding per kernel of a graph, or per kernel of the same lines of the model in one log."""
    kernels = _Kernels(evidence.trace)
    told = {
        (one.graph, frozenset((one.input, one.memory)))
        for one in hidden_aliases(evidence.trace)
        if one.overwritten_by is not None
    }
    untold = (
        [pair for pair in pairs if (pair.graph, frozenset(pair.memories)) not in told]
        for pairs in shared_memory(evidence.trace)
    )
    verdicts = [found for pairs in untold if (found := _judge(pairs, kernels))]
    return [_finding(evidence.trace, group) for group in grouped(verdicts, partial(_cause, evidence.trace))]


def _cause(trace: Trace, verdict: _Verdict) -> Hashable:
    pair = verdict.pair
    (site,) = site_rows(trace, [pair.site])
    return pair.log, pair.kernel, tuple(lines(site)) or pair.graph


class _Kernels:
    """Accesses of kernels, each read once."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self._code = cache(partial(code_of_graph, trace))
        self._kernels: dict[tuple[int, str], Accesses | None] = {}

    def accesses(self, graph: int, kernel: str, kind: str) -> Accesses | None:
        """Return the accesses of a kernel, or None if the log does not have its source."""
        code = self._code(graph)
        if code is None:
            return None
        if (graph, kernel) not in self._kernels:
            part = cut(code, kernel, kind, None)
            self._kernels[graph, kernel] = accesses(part.text) if part is not None else None
        return self._kernels[graph, kernel]


def _judge(pairs: list[SharedMemory], kernels: _Kernels) -> _Verdict | None:
    """Return the worst verdict on the pairs of one launch site."""
    found = [verdict for pair in pairs if (verdict := _judge_pair(pair, kernels))]
    return min(found, key=lambda verdict: verdict.severity != "critical", default=None)


def _judge_pair(pair: SharedMemory, kernels: _Kernels) -> _Verdict | None:
    is_same = pair.read.argument == pair.written.argument
    if not is_same and not do_overlap(pair.read, pair.written):
        return None
    if pair.kind in _GENERATED:
        return _judge_kernel(pair, kernels)
    if pair.written.parameter == "out" and pair.written.role == "out":
        return _Verdict(pair, "critical", "the output of an operator overlaps its input", [], [])
    if pair.written.role != "inout":
        return None
    if pair.read.form != pair.written.form:
        return _Verdict(pair, "warning", "an operator writes an argument that overlaps another one", [], [])
    return _judge_merged(pair, kernels.trace) if pair.kind == "fallback" else None


def _judge_merged(pair: SharedMemory, trace: Trace) -> _Verdict | None:
    """Judge an operator that gets one tensor twice."""
    (site,) = site_rows(trace, [pair.site])
    separate = separate_tensor(trace, pair, source_line(site))
    if separate is None:
        return None
    view, tensor = separate
    why = f"The program passes {tensor.name}{place(tensor.source)}, which has memory of its own, as {view.parameter}"
    return _Verdict(pair, "critical", why, [], [], separate)


def _judge_kernel(pair: SharedMemory, kernels: _Kernels) -> _Verdict | None:
    found = kernels.accesses(pair.graph, pair.kernel, pair.kind)
    pointers = {pair.read.parameter, pair.written.parameter}
    shift = _shift(pair)
    if found is None or None in pointers or pointers & found.unread or shift is None:
        return None
    for nest in found.nests:
        places = [place for place in nest if place.pointer in pointers]
        reads, writes = ([one for one in places if one.is_write is is_write] for is_write in (False, True))
        met = [read for read in reads if any(_meets(read, write, pair, shift) for write in writes)]
        if met:
            why = "one loop nest reads what it overwrites"
            return _Verdict(pair, "critical", why, _texts(met), _texts(writes))
    return None


def _meets(read: ElementAccess, write: ElementAccess, pair: SharedMemory, shift: int) -> bool:
    begins = {pair.read.parameter: shift, pair.written.parameter: 0}
    return meeting(read, write, begins[read.pointer] - begins[write.pointer]) == "meet"


def _shift(pair: SharedMemory) -> int | None:
    """Return by how many elements the argument that is read begins after the one that is written; None if unknown."""
    a, b = pair.read, pair.written
    if a.argument == b.argument or (a.offset is None and b.offset is None):
        return 0
    if a.offset is None or b.offset is None or a.dtype is None or b.dtype is None:
        return None
    return a.offset - b.offset if item_bytes(a.dtype) == item_bytes(b.dtype) else None


def _texts(places: Iterable[ElementAccess]) -> list[str]:
    return sorted({place.text for place in places})


def _finding(trace: Trace, group: list[_Verdict]) -> Timed:
    verdict = min(group, key=lambda one: one.severity != "critical")
    pair = verdict.pair
    (site,), where = site_rows(trace, [pair.site]), launch_place(trace, pair.launch)
    launches = sum(one.pair.launches for one in group)
    proof: dict[str, Any] = {
        "why": verdict.why,
        **attributes(pair, "step", "launch"),
        "launch_in_step": where.ordinal,
        "of": where.of,
        "written": attributes(pair.written, *_OF_VIEWS),
        "read": attributes(pair.read, *_OF_VIEWS),
        "read_at": verdict.read_at[:8],
        "written_at": verdict.written_at[:8],
        "launches": launches,
        "fx_nodes": site.fx_nodes[:50],
        "aten": site.aten[:50],
    }
    return where.time_unix_ns, Finding(
        kind="storage_overlap",
        severity=verdict.severity,
        title=_title(trace, verdict, site),
        rule=rule_of(__doc__),
        evidence=proof,
        page=f"/steps/{pair.step}?log={pair.log}&launch={pair.launch}",
        rank=where.rank,
        buffer=pair.written.name,
        argument=pair.written.name,
        source=source_line(site),
        proof=[_proof(verdict), f"{plural(launches, 'launch')}, first in {where.text}: {pair.kernel}"],
        links=[
            ProofLink(f"open launch {pair.launch}", f"/steps/{pair.step}?log={pair.log}&launch={pair.launch}"),
            ProofLink("open graph and code", f"/graphs/{pair.graph}?site={pair.site}"),
        ],
        **attributes(pair, "step", "graph", "launch", "kernel", "log"),
    )


def _title(trace: Trace, verdict: _Verdict, site: SiteRow) -> str:
    """Return a sentence such as ``x is overwritten while it is still read, by flip and add fused into one kernel``."""
    pair = verdict.pair
    read, written = (program_name(trace, pair.graph, _viewed(view.name)) for view in (pair.read, pair.written))
    if verdict.separate is not None:
        return (
            f"{fused(site)}{places(site)} gets {written} both as {pair.read.parameter} and as"
            f" {pair.written.parameter}, which it changes, although the program passes two tensors"
        )
    verb = "is" if verdict.severity == "critical" else "may be"
    who = read if read == written else f"Input {read}, which shares memory with output {written},"
    return f"{who} {verb} overwritten while it is still read, by {fused(site)}{places(site)}"


def _viewed(name: str) -> str:
    """Return the buffer of an argument that generated code writes as a view of it."""
    view = _VIEW.match(name)
    return view[1] if view is not None else name


def _proof(verdict: _Verdict) -> str:
    if not verdict.read_at or not verdict.written_at:
        return verdict.why
    return f"{verdict.why}: it reads element {verdict.read_at[0]} and writes element {verdict.written_at[0]}"
