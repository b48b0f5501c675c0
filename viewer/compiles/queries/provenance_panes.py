"""Relates the lines of a compile's pre-grad graph, post-grad graph and generated code."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from stepscope.viewer.compiles import provenance_lines as lines
from stepscope.viewer.compiles.provenance_lines import CodeText, GraphText, Names
from stepscope.viewer.compiles.queries.stages import CODE, LINES_OF_THE_COMPILE, InductorGraph, is_from_cache
from stepscope.viewer.compiles.rows import CompileDetail
from stepscope.viewer.graphs.rows import SourceLine
from stepscope.viewer.ingest.lenient_json import loads
from stepscope.viewer.records.rows import RecordRow
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

PANES = ("pre", "post", "code")
LONGEST_PANE = 600_000
"""Maximum number of characters that a pane shows."""
_POST_GRAD = ("inductor_post_grad_graph", "after_post_grad_graph", "before_post_grad_graph")


@dataclass(frozen=True)
class Pane:
    name: str
    title: str
    record: int | None
    text: str | None
    truncated: bool
    missing: str | None
    """Sentence that says why there is no text; None if there is one."""
    note: str | None
    """Remark about the text; None if there is nothing to say."""


@dataclass(frozen=True)
class KernelPlace:
    """A kernel launch in the generated code."""

    kernel: str
    """Kernel's name with its debug handle."""
    line: int
    graph: int | None
    """Graph that shows the recorded launches; None if they were not recorded."""
    site: int | None
    local_site: int | None
    launches: int | None
    sources: list[SourceLine]


@dataclass(frozen=True)
class LineGroup:
    """Related lines of the three panes."""

    pre: list[int]
    post: list[int]
    code: list[int]
    kernels: list[int]
    """Indices into the list of kernels."""


@dataclass(frozen=True)
class LineMap:
    groups: list[LineGroup]
    pre: dict[int, int]
    """Index of each line's group, keyed by line."""
    post: dict[int, int]
    code: dict[int, int]


@dataclass(frozen=True)
class ProvenancePanes:
    panes: list[Pane]
    kernels: list[KernelPlace]
    map: LineMap
    code_to_post: str
    """Description of how code and post-grad graph were matched."""
    post_to_pre: str


@dataclass
class _Facts:
    """The lines and node mappings of one Inductor graph."""

    pre: GraphText
    post: GraphText
    code: CodeText
    kernel_to_post: Names
    post_to_pre: Names
    kernel_sources: dict[str, list[SourceLine]]
    code_to_post_by: str = ""
    post_to_pre_by: str = ""


def provenance_panes(trace: Trace, detail: CompileDetail, unit: InductorGraph) -> ProvenancePanes:
    """Return the three texts of one Inductor graph and the map between their lines."""
    records = {"pre": unit.pre_grad, "post": _first(unit, _POST_GRAD), "code": _first(unit, CODE)}
    panes = [_pane(trace, name, records[name], unit) for name in PANES]
    sites = _sites(trace, records["code"])
    facts = _facts(trace, unit, [place.kernel for place in sites], *(pane.text or "" for pane in panes))
    shown = _shown_sources(trace, detail, unit, facts.kernel_sources)
    launches = facts.code.launches
    kernels = [_place(kernel, first, last, sites, shown) for kernel, first, last in launches]
    if not any(facts.kernel_to_post.get(kernel) for kernel, _, _ in launches):
        _from_sites(trace, facts, kernels)
    _say_how(facts, panes)
    return ProvenancePanes(panes, kernels, _line_map(facts), facts.code_to_post_by, facts.post_to_pre_by)


def _first(unit: InductorGraph, kinds: Iterable[str]) -> RecordRow | None:
    return next((unit.records[kind] for kind in kinds if kind in unit.records), None)


def _pane(trace: Trace, name: str, row: RecordRow | None, unit: InductorGraph) -> Pane:
    title = {"pre": "Pre-grad graph", "post": "Post-grad graph", "code": "Generated code"}[name]
    if row is None:
        return Pane(name, title, None, None, False, _why_missing(name, unit), None)
    text = _text(trace, row)
    note = LINES_OF_THE_COMPILE if is_from_cache(row.source) and "# File: " in text else None
    return Pane(name, title, row.record, text[:LONGEST_PANE], len(text) > LONGEST_PANE, None, note)


def _text(trace: Trace, row: RecordRow) -> str:
    return trace.payload(row.record).decode("utf-8", "replace").replace("\r\n", "\n")


def _why_missing(name: str, unit: InductorGraph) -> str:
    code = _first(unit, CODE)
    if name != "code" and code is not None and is_from_cache(code.source):
        return "The code came from the cache, so the passes that write this graph did not run."
    if name == "code":
        return "This compile logged no generated code."
    return "This log does not contain it: older versions of PyTorch log it only when provenance is tracked."


def _facts(trace: Trace, unit: InductorGraph, launched: Sequence[str], pre: str, post: str, code: str) -> _Facts:
    def held(kind: str) -> Any:
        row = unit.records.get(kind)
        try:
            return loads(trace.payload(row.record)) if row is not None else None
        except ValueError:
            return None

    mappings = lines.node_mappings(held("inductor_provenance_tracking_node_mappings"))
    kernel_to_post = mappings.kernel_to_post or lines.names(held("inductor_triton_kernel_to_post_grad_nodes"))
    post_to_pre = mappings.post_to_pre or lines.post_to_pre(held("inductor_post_to_pre_grad_nodes"))
    sources = lines.kernel_sources(held("inductor_provenance_tracking_kernel_stack_traces"))
    text = lines.code_lines(code, [*kernel_to_post, *sources, *launched])
    facts = _Facts(
        lines.graph_lines(pre), lines.graph_lines(post), text, dict(kernel_to_post), post_to_pre, sources,
        "PyTorch's map of kernels and nodes" if kernel_to_post else "",
        "PyTorch's map of nodes" if post_to_pre else "",
    )  # fmt: skip
    if not kernel_to_post and text.nodes:
        facts.kernel_to_post, facts.code_to_post_by = dict(text.nodes), "the graph fragments in the generated code"
    if not post_to_pre and text.sources:
        facts.post_to_pre, facts.post_to_pre_by = text.sources, "the comments in the generated code"
    return facts


def _sites(trace: Trace, code: RecordRow | None) -> list[KernelPlace]:
    """Return the launch sites of the graph with this output code, by line."""
    if code is None:
        return []
    found = sql.named(
        trace,
        "SELECT s.kernel, s.line, s.graph, s.site, s.local_site,"
        " (SELECT count(*) FROM launches l WHERE l.site = s.site) AS launches, s.stacks AS sources"
        " FROM sites s JOIN graphs g ON g.graph = s.graph WHERE g.output_code = ? ORDER BY s.line",
        [code.record],
        json=("sources",),
    )
    for row in found:
        row["sources"] = list(dict.fromkeys(SourceLine(**stack[-1]) for stack in row["sources"] or () if stack))
    return [KernelPlace(**row) for row in found]


def _place(
    kernel: str, first: int, last: int, sites: Sequence[KernelPlace], shown: Mapping[str, list[SourceLine]]
) -> KernelPlace:
    unknown = KernelPlace(kernel, last, None, None, None, None, [])
    found = next((place for place in sites if first <= place.line <= last), unknown)
    sources = found.sources or shown.get(kernel) or shown.get(lines.base_name(kernel), [])
    return replace(found, kernel=kernel, sources=sources)


def _shown_sources(
    trace: Trace, detail: CompileDetail, unit: InductorGraph, sources: Mapping[str, list[SourceLine]]
) -> Mapping[str, list[SourceLine]]:
    """Replace sources that came from a cache by the current lines of Dynamo's graph, or mark them as outdated."""
    row = unit.records.get("inductor_provenance_tracking_kernel_stack_traces")
    if row is None or not is_from_cache(row.source):
        return sources
    texts = [_text(trace, one) for one in detail.records if one.event == "dynamo_output_graph"]
    todays = {line for text in texts for line in lines.graph_lines(text).source_of.values()}
    return {kernel: [_todays(line, todays) for line in found] for kernel, found in sources.items()}


def _todays(line: SourceLine, todays: Collection[SourceLine]) -> SourceLine:
    if line in todays:
        return line
    alike = [one for one in todays if (one.function, one.code) == (line.function, line.code)]
    return alike[0] if len(alike) == 1 else replace(line, as_compiled="as compiled earlier, since changed")


def _from_sites(trace: Trace, facts: _Facts, kernels: Sequence[KernelPlace]) -> None:
    """Fill in the nodes that stepscope recorded for each launch."""
    wanted = {place.site: place.kernel for place in kernels if place.site is not None}
    if not wanted:
        return
    found = sql.rows(trace, "SELECT site, fx_nodes FROM sites WHERE list_contains($1, site)", [list(wanted)])
    named = {wanted[site]: sql.json_value(nodes) or [] for site, nodes in found}
    if any(named.values()):
        facts.kernel_to_post = {kernel: nodes for kernel, nodes in named.items() if nodes}
        facts.code_to_post_by = "what stepscope recorded of each launch"


def _say_how(facts: _Facts, panes: Sequence[Pane]) -> None:
    """Describe how the panes were matched, including matches by program line where no record names nodes."""
    pre, post, code = panes
    sources = facts.post.source_of
    facts.code_to_post_by = _words(
        facts.code_to_post_by, post.missing or code.missing, bool(facts.kernel_sources and sources)
    )
    facts.post_to_pre_by = _words(
        facts.post_to_pre_by, pre.missing or post.missing, bool(facts.pre.source_of and sources)
    )


def _words(nodes: str, missing: str | None, has_lines: bool) -> str:
    if missing:
        return "nothing, because one of the two is missing"
    lines_of_program = "the line of the program that both came from" if has_lines else ""
    return ", else ".join(filter(None, (nodes, lines_of_program))) or "nothing in this log"


class _Groups:
    """The distinct groups of lines, numbered."""

    def __init__(self) -> None:
        self.found: dict[tuple[tuple[int, ...], ...], int] = {}

    def number(self, *parts: Iterable[int]) -> int:
        key = tuple(tuple(sorted(set(part))) for part in parts)
        return self.found.setdefault(key, len(self.found))


def _line_map(facts: _Facts) -> LineMap:
    launches = facts.code.launches
    post_of = [_post_lines(facts, kernel) for kernel, _, _ in launches]
    pre_of_post = _pre_of_post(facts)
    kernels_of_post: defaultdict[int, list[int]] = defaultdict(list)
    for kernel, posts in enumerate(post_of):
        for line in posts:
            kernels_of_post[line].append(kernel)
    post_of_pre: defaultdict[int, list[int]] = defaultdict(list)
    for post, pres in pre_of_post.items():
        for line in pres:
            post_of_pre[line].append(post)
    code_of = [_code_of_kernel(facts.code, kernel, first, last) for kernel, first, last in launches]
    groups = _Groups()

    def group(pre: Iterable[int], post: Iterable[int], kernels: Iterable[int]) -> int:
        kernels = list(dict.fromkeys(kernels))
        return groups.number(pre, post, [line for kernel in kernels for line in code_of[kernel]], kernels)

    of_post = {
        line: group(pre_of_post.get(line, ()), [line], kernels_of_post[line])
        for line in sorted({*pre_of_post, *kernels_of_post})
    }
    of_pre = {
        line: group([line], posts, [kernel for post in posts for kernel in kernels_of_post[post]])
        for line, posts in sorted(post_of_pre.items())
    }
    kernels_at: defaultdict[int, list[int]] = defaultdict(list)
    for kernel, covered in enumerate(code_of):
        for line in covered:
            kernels_at[line].append(kernel)
    of_code = {}
    for line, kernels in sorted(kernels_at.items()):
        posts = [post for kernel in kernels for post in post_of[kernel]]
        of_code[line] = group([pre for post in posts for pre in pre_of_post.get(post, ())], posts, kernels)
    return LineMap([LineGroup(*map(list, key)) for key in groups.found], of_pre, of_post, of_code)


def _post_lines(facts: _Facts, kernel: str) -> list[int]:
    nodes = facts.kernel_to_post.get(kernel) or facts.kernel_to_post.get(lines.base_name(kernel))
    if nodes:
        return [facts.post.line_of[node] for node in nodes if node in facts.post.line_of]
    places = {(line.file, line.line) for line in facts.kernel_sources.get(kernel, ())}
    return [number for number, line in facts.post.source_of.items() if (line.file, line.line) in places]


def _pre_of_post(facts: _Facts) -> dict[int, list[int]]:
    """Return the pre-grad lines of each post-grad line, matched by node, else by the program line they came from."""
    by_place: defaultdict[SourceLine, list[int]] = defaultdict(list)  # includes the text, as cached lines may move
    for number, line in facts.pre.source_of.items():
        by_place[line].append(number)
    found = {number: by_place[line] for number, line in facts.post.source_of.items() if line in by_place}
    for node, before in facts.post_to_pre.items():
        known = [facts.pre.line_of[name] for name in before if name in facts.pre.line_of]
        if known and node in facts.post.line_of:
            found[facts.post.line_of[node]] = known
    return found


def _code_of_kernel(code: CodeText, kernel: str, first: int, last: int) -> list[int]:
    """Return the lines of the kernel's launch, and of its definition if the code contains one."""
    found = [*range(first, last + 1)]
    definition = code.definitions.get(lines.base_name(kernel))
    return [*range(definition[0], definition[1] + 1), *found] if definition else found
