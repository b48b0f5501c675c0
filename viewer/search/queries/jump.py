"""Finds the pages that typed words may mean: `launch 412`, `0/0`, `buf17`, `layers.3.weight`, `model.py:5`, `nan`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from stepscope.viewer.graphs.queries.named_buffers import buffers_called
from stepscope.viewer.graphs.queries.named_sites import PLACE, named_sites, names_like
from stepscope.viewer.graphs.queries.program_names import name_in_program
from stepscope.viewer.overview.queries.overview import first_page
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.web.addresses import compile_slug, query_text, slug

MOST = 14
_EACH = 5
_PAGES = {
    "overview": "/", "steps": "/steps", "graphs": "/graphs", "memory": "/memory", "kernels": "/kernels",
    "values": "/values", "compile": "/compile", "compile time": "/compile-time", "recompiles": "/recompiles",
    "graph breaks": "/graph-breaks", "caches": "/caches", "ranks": "/ranks", "records": "/records",
    "tables": "/tables", "sql": "/sql", "problems": "/problems", "damage": "/problems",
    "not recorded": "/problems#not-recorded", "judge": "/judge", "metrics": "/metrics", "cuda graphs": "/cuda-graphs",
    "compare": "/compare",
}  # fmt: skip
_SYMPTOMS = {
    "nan": (("nonfinite",), "/values"), "inf": (("nonfinite",), "/values"), "infinity": (("nonfinite",), "/values"),
    "overflow": (("nonfinite",), "/values"), "uninitialised": (("uninitialised_read",), "/values"),
    "leak": (("growth",), "/memory"), "growth": (("growth",), "/memory"), "peak": ((), "/memory"),
    "out of memory": ((), "/memory"), "oom": ((), "/memory"), "recompiles": (("recompile", "recompile_limit"), ""),
    "breaks": (("graph_break",), "/graph-breaks"), "crash": (("crash", "exception"), ""),
    "slow": ((), "/kernels?table=0.3.down"), "rank differences": (("rank_divergence",), "/ranks"),
}  # fmt: skip
"""Words for symptoms, the kinds of findings about them, and the page that shows them without a finding."""
_NUMBERED = re.compile(r"(?:(launch|step|record|graph)\s*)?#?\s*(\d{1,18})", re.IGNORECASE)
_COMPILE_ID = re.compile(r"(?:compile\s+)?((?:r\d+:)?(?:!?\d+(?:/\d*)*|-))", re.IGNORECASE)


@dataclass(frozen=True)
class Jump:
    """A page that fits the typed words."""

    kind: str
    label: str
    detail: str
    page: str


def jumps(trace: Trace, text: str) -> list[Jump]:
    """Return the pages that `text` may mean, surest first, at most `MOST`."""
    wanted = text.strip()
    if not wanted:
        return []
    found: dict[str, Jump] = {}
    for jump in _all(trace, wanted):
        found.setdefault(jump.page, jump)
    return list(found.values())[:MOST]


def _all(trace: Trace, text: str) -> Iterator[Jump]:
    if numbered := _NUMBERED.fullmatch(text):
        yield from _numbered(trace, (numbered[1] or "").lower(), int(numbered[2]))
    if compile_id := _COMPILE_ID.fullmatch(text):
        yield from _compiles(trace, compile_id[1])
    yield from _symptoms(trace, text.lower())
    yield from _pages(text)
    if place := PLACE.fullmatch(text):
        yield from _lines(trace, text, place[1], int(place[2]))
    yield from _buffers(trace, _after("buffer", text))
    yield from _called(trace, _after("buffer", text))
    yield from _names(trace, text)
    yield from _kernels(trace, _after("kernel", text))
    yield from _frames(trace, text)
    yield from _findings(trace, text.lower())


def _after(word: str, text: str) -> str:
    return text[len(word) :].strip() if text.lower().startswith(f"{word} ") else text


def _numbered(trace: Trace, kind: str, number: int) -> Iterator[Jump]:
    if kind in ("", "launch"):
        for step, kernel in sql.rows(
            trace, "SELECT l.step, s.kernel FROM launches l JOIN sites s USING (site) WHERE l.launch = ?", [number]
        ):
            yield Jump("launch", f"launch {number}", f"{kernel}, step {step}", f"/launches/{number}")
    if kind in ("", "step"):
        rows = sql.rows(trace, "SELECT log, launches FROM steps WHERE step = ? ORDER BY log LIMIT ?", [number, _EACH])
        for log, launches in rows:
            yield Jump("step", f"step {number}", f"log {log}, launches: {launches:,}", f"/steps/{number}?log={log}")
    if kind in ("", "graph"):
        for compile_id, phase in sql.rows(trace, "SELECT compile_id, phase FROM graphs WHERE graph = ?", [number]):
            yield Jump("graph", f"graph {number}", f"{compile_id or ''} {phase or ''}".strip(), f"/graphs/{number}")
    if kind in ("", "record"):
        for event, name in sql.rows(trace, "SELECT event, name FROM records WHERE record = ?", [number]):
            yield Jump("record", f"record {number}", name or event, f"/records/{number}")


def _compiles(trace: Trace, compile_id: str) -> Iterator[Jump]:
    rows = sql.rows(
        trace,
        "SELECT log, compile_id, frame FROM compiles WHERE starts_with(compile_id, ?)"
        " ORDER BY compile_id <> ?, log, compile LIMIT ?",
        [compile_id, compile_id, _EACH],
    )
    for log, found, frame in rows:
        yield Jump("compile", found, frame or "", f"/compile/{slug(compile_slug(found))}?log={log}")


def _pages(text: str) -> Iterator[Jump]:
    for name, page in _PAGES.items():
        if name.startswith(text.lower()):
            yield Jump("page", name, "", page)


def _symptoms(trace: Trace, text: str) -> Iterator[Jump]:
    for word, (kinds, page) in _SYMPTOMS.items():
        if len(text) > 1 and word.startswith(text):
            found = [row for row in first_page(trace).findings if row.kind in kinds]
            yield from (Jump("finding", row.title, "", row.page) for row in found[:_EACH])
            if page:
                yield Jump("symptom", word, f"opens {page.split('?')[0]}", page)


def _findings(trace: Trace, text: str) -> Iterator[Jump]:
    rows = first_page(trace).findings if len(text) > 2 else []
    found = [row for row in rows if text in row.title.lower()]
    yield from (Jump("finding", row.title, "", row.page) for row in found[:_EACH])


def _lines(trace: Trace, text: str, file: str, line: int) -> Iterator[Jump]:
    if count := len(named_sites(trace, text)):
        yield Jump("line", text, f"launch sites: {count:,}", f"/sites?{query_text({'name': text})}")
    rows = sql.rows(
        trace,
        "SELECT log, compile_id, frame FROM compiles WHERE line = ? AND ends_with('/' || file, '/' || ?)"
        " ORDER BY log, compile LIMIT ?",
        [line, file, _EACH],
    )
    for log, compile_id, frame in rows:
        yield Jump("compile", compile_id, frame or "", f"/compile/{slug(compile_slug(compile_id))}?log={log}")


def _names(trace: Trace, text: str) -> Iterator[Jump]:
    for kind, name, sites in names_like(trace, text, _EACH) if not text.isdecimal() else ():
        yield Jump(kind, name, f"launch sites: {sites:,}", f"/sites?{query_text({'name': name})}")


def _kernels(trace: Trace, text: str) -> Iterator[Jump]:
    rows = sql.rows(
        trace,
        "SELECT kernel, count(*) FROM sites WHERE contains(lower(kernel), lower(?)) GROUP BY kernel"
        " ORDER BY lower(kernel) <> lower(?), length(kernel), kernel LIMIT ?",
        [text, text, _EACH],
    )
    for kernel, sites in rows:
        yield Jump("kernel", kernel, f"launch sites: {sites:,}", f"/kernels/{slug(kernel)}")


def _buffers(trace: Trace, text: str) -> Iterator[Jump]:
    rows = sql.rows(
        trace,
        "SELECT DISTINCT a.buffer, s.graph, g.compile_id, g.phase FROM arguments a JOIN sites s USING (site)"
        " JOIN graphs g USING (graph) WHERE starts_with(a.buffer, ?)"
        " ORDER BY a.buffer <> ?, length(a.buffer), a.buffer, s.graph LIMIT ?",
        [text, text, _EACH],
    )
    for buffer, graph, compile_id, phase in rows:
        where = _graph(graph, compile_id, phase)
        detail = ", ".join(part for part in (name_in_program(trace, graph, buffer), where) if part)
        yield Jump("buffer", buffer, detail, f"/graphs/{graph}/buffers/{slug(buffer)}")


def _graph(graph: int, compile_id: str | None, phase: str | None) -> str:
    return " ".join(part for part in (f"graph {graph}", compile_id, phase) if part)


def _called(trace: Trace, text: str) -> Iterator[Jump]:
    found, left = buffers_called(trace, text, _EACH) if not text.isdecimal() else ([], 0)
    for one in found:
        detail = f"{one.buffer}, {_graph(one.graph, one.compile_id, one.phase)}"
        yield Jump("buffer", one.name, detail, f"/graphs/{one.graph}/buffers/{slug(one.buffer)}")
    if left and len(found) < _EACH:
        yield Jump("graphs", f"{left:,} graphs are not searched yet", "type on to search more", "/graphs")


def _frames(trace: Trace, text: str) -> Iterator[Jump]:
    rows = sql.rows(
        trace,
        "SELECT log, compile_id, frame FROM compiles WHERE contains(lower(frame), lower(?))"
        " ORDER BY log, compile LIMIT ?",
        [text, _EACH],
    )
    for log, compile_id, frame in rows:
        yield Jump("compile", compile_id, frame, f"/compile/{slug(compile_slug(compile_id))}?log={log}")
