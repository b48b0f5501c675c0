"""A storage did not live as the scheduler or the statements of the generated wrapper expect: it was freed later or
earlier, allocated though nothing expects it, or not at all; or a check in the code (`check_memory_step`) found that it
did not live as the check was told. One finding per graph (or file of checks that belong to no graph), buffer and kind.
A storage that is freed early and that a later launch of the same call still reads is critical; every other one, and all
that only a check found, is a warning."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import PurePath
from typing import Any

from viewer.findings.evidence import MOST_EXAMPLES, Evidence, Timed, grouped, rule_of, times
from viewer.formats import format_bytes
from viewer.queries.memory_checks import CheckMismatchRow, check_mismatches
from viewer.queries.memory_mismatches import lifetime_mismatches
from viewer.queries.memory_places import label_of, moment_of
from viewer.queries.memory_reads import readers_after
from viewer.queries.rows import Finding
from viewer.queries.rows_of_memory import LifetimeMismatchRow
from viewer.store.open import Trace

_TEXTS = {
    "missing_death": "was not freed",
    "unexpected_death": "was freed early",
    "missing_allocation": "was not allocated",
    "unexpected_allocation": "was allocated, which nothing expects",
}
_TOLD = {
    "missing_death": "expects it dead",
    "unexpected_death": "expects it alive",
    "missing_allocation": "expects it made",
    "unexpected_allocation": "does not name it",
}


def find(evidence: Evidence) -> list[Timed]:
    """One finding per graph, buffer and kind, whether lifetimes that were followed show it, a check, or both."""
    trace, found = evidence.trace, []
    checks = {_checked(group[0]): group for group in grouped(check_mismatches(trace), _checked)}
    for group in grouped(lifetime_mismatches(trace), lambda row: (row.graph, row.buffer, row.kind)):
        key = group[0].graph, group[0].buffer, group[0].kind
        found.append(_finding(trace, group, checks.pop(key, [])))
    return [*found, *(_of_check(evidence, group) for group in checks.values())]


def _checked(row: CheckMismatchRow) -> tuple[object, ...]:
    where = (row.log, row.file) if row.graph is None else (row.graph,)
    return *where, row.buffer, row.kind


def _finding(trace: Trace, group: list[LifetimeMismatchRow], checks: Sequence[CheckMismatchRow]) -> Timed:
    first, calls = group[0], sum(row.calls for row in group)
    moment, readers = moment_of(trace, first.call), _readers(trace, first)
    size = f" ({format_bytes(first.storage_bytes)})" if first.storage_bytes is not None else ""
    what = _TEXTS.get(first.kind, first.kind)
    proof: dict[str, Any] = {
        "kind": first.kind,
        "storage_bytes": first.storage_bytes,
        "calls": calls,
        "expected": first.expected,
        "expected_snode": first.expected_snode,
        "expected_kernel": first.expected_kernel,
        "actual": first.actual,
        "actual_snode": first.actual_snode,
        "actual_kernel": first.actual_kernel,
        "expected_by": first.expected_by,
        "holders": first.holders,
        "read_after": readers,
        "checked_at": _lines(checks),
    }
    return moment.time_unix_ns, Finding(
        kind="lifetime_mismatch",
        severity="critical" if readers else "warning",
        title=(
            f"{first.buffer}{size} of {label_of(trace, first.graph)} {what}{times(calls)}: {_expected(first)}, "
            f"{_actual(first)}{_holders(first)}{_read(readers)}"
        ),
        rule=rule_of(__doc__),
        evidence=proof,
        page=_page(first),
        rank=moment.rank,
        step=moment.step,
        graph=first.graph,
        launch=first.actual_launch,
        kernel=first.actual_kernel or first.expected_kernel,
        buffer=first.buffer,
        source=first.source,
        log=first.log,
    )


def _of_check(evidence: Evidence, group: Sequence[CheckMismatchRow]) -> Timed:
    trace, first = evidence.trace, group[0]
    moment = moment_of(trace, first.call)
    if first.call is None:
        moment = replace(moment, rank=evidence.runs[first.log].rank)
    size = f" ({format_bytes(first.storage_bytes)})" if first.storage_bytes is not None else ""
    graph = f" of {label_of(trace, first.graph)}" if first.graph is not None else ""
    final = ", of the final step," if first.is_final_step else ""
    call = f"?call={first.call}" if first.call is not None else ""
    return moment.time_unix_ns, Finding(
        kind="lifetime_mismatch",
        severity="warning",
        title=(
            f"{first.buffer}{size}{graph} {_TEXTS.get(first.kind, first.kind)}: the check at "
            f"{PurePath(first.file).name}:{first.line}{final} {_TOLD.get(first.kind, '')}{_holders(first)}"
        ),
        rule=rule_of(__doc__),
        evidence={
            "kind": first.kind,
            "storage_bytes": first.storage_bytes,
            "checks": len(group),
            "checked_at": _lines(group),
            "is_final_step": first.is_final_step,
            "expected_by": "check",
            "holders": first.holders,
        },
        page=f"/graphs/{first.graph}/memory{call}" if first.graph is not None else f"/memory?log={first.log}",
        rank=moment.rank,
        step=moment.step,
        graph=first.graph,
        buffer=first.buffer,
        source=first.source,
        log=first.log,
    )


def _lines(checks: Sequence[CheckMismatchRow]) -> list[str]:
    return list(dict.fromkeys(f"{row.file}:{row.line}" for row in checks))[:MOST_EXAMPLES]


def _readers(trace: Trace, row: LifetimeMismatchRow) -> list[str]:
    if row.kind != "unexpected_death" or row.call is None or row.actual is None:
        return []
    return readers_after(trace, row.graph, row.call, row.buffer, max(row.actual, 0))


def _expected(row: LifetimeMismatchRow) -> str:
    verb = "to die" if row.kind.endswith("death") else "to be made"
    if row.expected is None:
        return "expected to outlive the call" if row.kind.endswith("death") else "not expected"
    return f"expected {verb} {_place(row.kind, row.expected, row.expected_kernel, row.expected_snode)}"


def _actual(row: LifetimeMismatchRow) -> str:
    if row.actual is None:
        return "alive after the call" if row.kind.endswith("death") else "never made"
    verb = "died" if row.kind.endswith("death") else "made"
    return f"{verb} {_place(row.kind, row.actual, row.actual_kernel, row.actual_snode)}"


def _place(kind: str, position: int, kernel: str | None, snode: str | None) -> str:
    word = "after" if kind.endswith("death") else "before"
    name = kernel or (f"launch {position}" if word == "after" else f"launch {position + 1}")
    return f"{word} {name}" + (f" ({snode})" if snode else "")


def _holders(row: LifetimeMismatchRow | CheckMismatchRow) -> str:
    return f"; held by {row.holders[0]}" if row.holders else ""


def _read(readers: list[str]) -> str:
    return f"; {readers[0]} reads it afterwards" if readers else ""


def _page(row: LifetimeMismatchRow) -> str:
    call = f"&call={row.call}" if row.call is not None else ""
    snode = f"&snode={row.snode_indices[0]}" if row.snode_indices else ""
    query = (call + snode).replace("&", "?", 1)
    return f"/graphs/{row.graph}/memory{query}"
