"""The lifetime of a storage differs from the expectation of the scheduler or of the generated wrapper: the storage was
freed later or earlier, was allocated unexpectedly, or was not allocated at all; or a `check_memory_step` in the
generated code found that it differs from what the check expects. There is one finding per graph (or per file of
checks outside of all graphs), buffer and kind of mismatch. Buffers that the same holders keep and that the same line
of the model made share one finding, as do buffers without a known holder that should be freed after launches of one
custom operator, which may keep them. Inputs whose memory an operator returns are left to the finding hidden_alias.
An input that the graph may free is checked in the first calls of the graph, and only if nothing else held it when
the call began, because the caller and autograd may keep inputs alive. A storage that is freed early although a later
launch of the same call reads it is critical. Every other mismatch, and everything that only a check found, is a
warning."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from pathlib import PurePath
from typing import Any, TypeAlias, TypeVar

from stepscope.viewer.findings.evidence import (
    MOST_EXAMPLES,
    Evidence,
    Timed,
    attributes,
    buffers_table,
    grouped,
    leak_key,
    names_text,
    open_buffer,
    open_launch,
    rule_of,
    times,
)
from stepscope.viewer.graphs.queries.hidden_aliases import hidden_aliases, is_custom
from stepscope.viewer.memory.queries.graph_index import graph_index, launches_of, moment_of, named_graph, sites_using
from stepscope.viewer.memory.queries.lifecycle_checks import CheckMismatchRow, check_mismatches
from stepscope.viewer.memory.queries.mismatches import lifetime_mismatches
from stepscope.viewer.memory.rows import LifetimeMismatchRow
from stepscope.viewer.overview.rows import Finding, ProofLink
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.text.formats import capitalized, format_bytes, holder_text, nth

SUMMARY = "A buffer lived longer or shorter than expected"
TITLE_IS_MEASURED = True

Row: TypeAlias = LifetimeMismatchRow | CheckMismatchRow
T = TypeVar("T")
Leak: TypeAlias = list[list[T]]
"""The mismatches of each buffer."""

_TEXTS = {
    "missing_death": "was not freed",
    "unexpected_death": "was freed early",
    "missing_allocation": "was not allocated",
    "unexpected_allocation": "was allocated unexpectedly",
}
_TOLD = {
    "missing_death": "expects it to be freed",
    "unexpected_death": "expects it to be alive",
    "missing_allocation": "expects it to be allocated",
    "unexpected_allocation": "does not expect it",
}


def find(evidence: Evidence) -> list[Timed]:
    """Return one finding per leak, whether measured lifetimes, a check, or both show it."""
    trace, found = evidence.trace, []
    aliased = {(one.graph, one.input) for one in hidden_aliases(trace)}  # which the finding hidden_alias explains
    rows = [row for row in lifetime_mismatches(trace) if (row.graph, row.buffer) not in aliased]
    checks = {_key(group[0]): group for group in grouped(check_mismatches(trace), _key)}
    for leak in grouped(grouped(rows, _key), _leak):
        also = [row for group in leak for row in checks.pop(_key(group[0]), [])]
        found.append(_finding(trace, leak, also))
    return [*found, *(_of_check(evidence, leak) for leak in grouped(checks.values(), _leak))]


def _where(row: Row) -> tuple[object, ...]:
    return (row.log, row.file) if isinstance(row, CheckMismatchRow) and row.graph is None else (row.graph,)


def _key(row: Row) -> tuple[object, ...]:
    buffer = row.storage if isinstance(row, CheckMismatchRow) else row.buffer
    return *_where(row), buffer, row.kind


def _leak(group: Sequence[Row]) -> Hashable:
    first = group[0]
    kind = (first.kind, _is_late(first))
    if isinstance(first, LifetimeMismatchRow) and first.kind == "missing_death" and not first.holders:
        kept_by = first.expected_kernel or ""
        if is_custom(kept_by):
            return _where(first), kind, kept_by
    return leak_key(_where(first), kind, first.holders, first.source, first.buffer)


def _is_late(row: Row) -> bool:
    """Return whether a storage was freed after all, within the call."""
    return isinstance(row, LifetimeMismatchRow) and row.kind == "missing_death" and row.actual is not None


def _finding(trace: Trace, leak: Leak[LifetimeMismatchRow], checks: Sequence[CheckMismatchRow]) -> Timed:
    firsts = [group[0] for group in leak]
    first = firsts[0]
    calls = max([*(sum(row.calls for row in group) for group in leak), *(row.times for row in checks)])
    moment, readers = moment_of(trace, first.call), _readers(trace, first)
    proof: dict[str, Any] = {
        "kind": first.kind,
        "storage_bytes": _size(firsts),
        "calls": calls,
        **attributes(first, "expected", "expected_snode", "expected_kernel"),
        **attributes(first, "actual", "actual_snode", "actual_kernel", "expected_by", "holders"),
        "read_after": readers,
        "checked_at": _lines(checks),
        "buffers": buffers_table(firsts, "buffer", "storage_bytes", "expected_kernel", "actual_kernel"),
    }
    return moment.time_unix_ns, Finding(
        kind="lifetime_mismatch",
        severity="critical" if readers else "warning",
        title=(
            f"{_buffers(firsts)} of {named_graph(trace, first.graph)} {_what(firsts)}{times(calls)}"
            f"{_holders(firsts)}{_read(readers)}"
        ),
        proof=[_places(firsts)],
        links=_links(trace, first),
        rule=rule_of(__doc__),
        evidence=proof,
        page=_page(first),
        launch=first.actual_launch,
        kernel=first.actual_kernel or first.expected_kernel,
        **attributes(moment, "rank", "step"),
        **attributes(first, "graph", "buffer", "source", "log"),
    )


def _of_check(evidence: Evidence, leak: Leak[CheckMismatchRow]) -> Timed:
    trace, firsts = evidence.trace, [group[0] for group in leak]
    first, rows = firsts[0], [row for group in leak for row in group]
    often = max(row.times for row in rows)
    moment = moment_of(trace, first.call)
    if first.call is None:
        moment = replace(moment, rank=evidence.rank_of(first.log))
    graph = f" of {named_graph(trace, first.graph)}" if first.graph is not None else ""
    call = f"?call={first.call}" if first.call is not None else ""
    return moment.time_unix_ns, Finding(
        kind="lifetime_mismatch",
        severity="warning",
        title=f"{_buffers(firsts)}{graph} {_what(firsts)}{times(often)}: {_told(firsts)}{_holders(firsts)}",
        rule=rule_of(__doc__),
        evidence={
            "kind": first.kind,
            "storage_bytes": _size(firsts),
            "calls": often,
            "checks": len(rows),
            "kernel": first.kernel,
            "checked_at": _lines(rows),
            "is_final_step": first.is_final_step,
            "expected_by": "check",
            "holders": first.holders,
            "buffers": buffers_table(firsts, "buffer", "storage_bytes", "file", "line"),
        },
        page=f"/graphs/{first.graph}/memory{call}" if first.graph is not None else f"/memory?log={first.log}",
        **attributes(moment, "rank", "step"),
        **attributes(first, "graph", "kernel", "buffer", "source", "log"),
    )


def _size(rows: Sequence[Row]) -> int | None:
    known = [row.storage_bytes for row in rows if row.storage_bytes is not None]
    return sum(known) if known else None


def _buffers(rows: Sequence[Row]) -> str:
    size = _size(rows)
    return names_text([row.buffer for row in rows]) + (f" ({format_bytes(size)})" if size is not None else "")


def _what(rows: Sequence[Row]) -> str:
    text = "was freed later than expected" if _is_late(rows[0]) else _TEXTS.get(rows[0].kind, rows[0].kind)
    return text.replace("was ", "were ", 1) if len(rows) > 1 else text


def _places(rows: Sequence[LifetimeMismatchRow]) -> str:
    """Return the expected and the actual position, as far as they are the same for all rows."""
    expected, actual = _expectations(rows), {_actual(row) for row in rows}
    verb = "were" if len(rows) > 1 else "was"
    subject = "they" if len(rows) > 1 else "it"
    told = [f"{subject} {verb} {texts.pop()}" for texts in (expected, actual) if len(texts) == 1]
    return f"{capitalized(', but '.join(told))}." if told else "Each of them is at a different position."


def _expectations(rows: Sequence[LifetimeMismatchRow]) -> set[str]:
    """Return what is expected of the rows, without scheduler nodes if all wait for launches of one kernel."""
    texts, kernels = {_expected(row) for row in rows}, {row.expected_kernel for row in rows}
    if len(texts) == 1 or len(kernels) > 1 or None in kernels:
        return texts
    return {_expected(replace(row, expected_snode=None)) for row in rows}


def _told(rows: Sequence[CheckMismatchRow]) -> str:
    places = [f"{PurePath(row.file).name}:{row.line}" for row in rows]
    if len(rows) > 1:
        return f"the checks at {names_text(list(dict.fromkeys(places)))} found it"
    final = ", of the final step," if rows[0].is_final_step else ""
    after = f" after {rows[0].kernel}" if rows[0].kernel is not None else ""
    return f"the check at {places[0]}{after}{final} {_TOLD.get(rows[0].kind, '')}"


def _lines(checks: Sequence[CheckMismatchRow]) -> list[str]:
    return list(dict.fromkeys(f"{row.file}:{row.line}" for row in checks))[:MOST_EXAMPLES]


def _readers(trace: Trace, row: LifetimeMismatchRow) -> list[str]:
    """Return the kernels of later launches of the call that read a buffer which was freed early."""
    if row.kind != "unexpected_death" or row.call is None or row.actual is None:
        return []
    readers = sites_using(trace, row.graph, row.buffer, ("in", "inout"))
    after = [site for _, site, _ in launches_of(trace, row.call)[max(row.actual, 0) :] if site in readers]
    return [graph_index(trace, row.graph).kernel(site) or "" for site in dict.fromkeys(after)]


def _expected(row: LifetimeMismatchRow) -> str:
    verb = "to be freed" if row.kind.endswith("death") else "to be allocated"
    if row.expected is None:
        return "expected to outlive the call" if row.kind.endswith("death") else "not in the schedule"
    return f"expected {verb} {_place(row.kind, row.expected, row.expected_kernel, row.expected_snode)}"


def _actual(row: LifetimeMismatchRow) -> str:
    if row.actual is None:
        return "still alive after the call" if row.kind.endswith("death") else "never allocated"
    verb = "freed" if row.kind.endswith("death") else "allocated"
    return f"{verb} {_place(row.kind, row.actual, row.actual_kernel, row.actual_snode)}"


def _place(kind: str, position: int, kernel: str | None, snode: str | None) -> str:
    word = "after" if kind.endswith("death") else "before"
    if kernel is None and word == "after" and position == 0:
        word, kernel = "before", "the 1st launch of the call"
    name = kernel or f"the {nth(position if word == 'after' else position + 1)} launch of the call"
    return f"{word} {name}" + (f" ({snode})" if snode else "")


def _holders(rows: Sequence[Row]) -> str:
    if not rows[0].holders:
        return ""
    holder = rows[0].holders[0]
    if holder.startswith("not found"):
        return f"; its holder was {holder}"
    return f"; {'they are' if len(rows) > 1 else 'it is'} held by {holder_text(holder)}"


def _read(readers: list[str]) -> str:
    return f"; {readers[0]} reads it afterwards" if readers else ""


def _page(row: LifetimeMismatchRow) -> str:
    call = f"&call={row.call}" if row.call is not None else ""
    snode = f"&snode={row.snode_indices[0]}" if row.snode_indices else ""
    query = (call + snode).replace("&", "?", 1)
    return f"/graphs/{row.graph}/memory{query}"


def _links(trace: Trace, row: LifetimeMismatchRow) -> list[ProofLink]:
    ended = [open_launch(row.actual_launch)] if row.actual_launch is not None else []
    return [*ended, *open_buffer(trace, row.graph, row.buffer)]
