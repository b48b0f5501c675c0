"""A call of compiled code raised an exception, whether the program caught it or not: a kernel found an index out of
bounds, an assertion in the generated code failed, or an operator refused its inputs. The finding names the launch that
raised, or the last launch before the statement that did. It is critical if the exception ended the program, and a
warning if the program went on. The same exceptions at one line of the model share a finding. An exception that ended
the program in a launch is a finding of the kind crash instead."""

from __future__ import annotations

import re
from typing import NamedTuple

from stepscope.viewer.crash.queries.process_ends import uncaught_exceptions
from stepscope.viewer.crash.queries.raised_calls import RaisedCallRow, raised_calls
from stepscope.viewer.findings.crash.deaths import deaths
from stepscope.viewer.findings.evidence import (
    Evidence,
    Timed,
    attributes,
    called_at,
    grouped,
    in_logs,
    logs_of,
    program_name,
    rule_of,
    times,
)
from stepscope.viewer.findings.values.operations import operation, operators, place, source_line
from stepscope.viewer.graphs.queries.graphs import site_rows
from stepscope.viewer.graphs.rows import SiteRow, SourceLine
from stepscope.viewer.overview.rows import Finding, ProofLink
from stepscope.viewer.store.trace import Trace

SUMMARY = "A call of compiled code raised an exception"
_ASSERTED = re.compile(r"assert_(?:size_stride|tensor_metadata|alignment)\((\w+)")
_CAUSES = (
    ("index out of bounds", re.compile(r"index(?:es)? out of (?:bounds|range)|out of bounds", re.IGNORECASE)),
    ("out of memory", re.compile(r"out of memory|can't allocate memory|OutOfMemory", re.IGNORECASE)),
    ("size or stride", re.compile(r"expected size|stride|shape|size mismatch|same reduction dim", re.IGNORECASE)),
    ("dtype", re.compile(r"dtype|scalar type", re.IGNORECASE)),
    ("device", re.compile(r"same device|expected device", re.IGNORECASE)),
)

_RAISING = {"index out of bounds": ("index", "gather", "embedding", "scatter", "select"), "assertion": ("assert",)}
"""Parts of the names of operators that raise for a kind of cause."""


class _Told(NamedTuple):
    """An exception and what is said about it."""

    row: RaisedCallRow
    site: SiteRow | None
    what: str
    is_end: bool


def find(evidence: Evidence) -> list[Timed]:
    """Return one finding for all exceptions with the same text at the same line of the model."""
    trace = evidence.trace
    rows = raised_calls(trace)
    if not rows:
        return []
    in_crash = {death.run.log for death in deaths(trace) if death.kind != "exception"}
    rows = [row for row in rows if not (row.log in in_crash and ended(trace, row))]
    known = sorted({row.site for row in rows if row.site is not None})
    sites: dict[int | None, SiteRow] = {site.site: site for site in site_rows(trace, known)}
    told = [_Told(row, sites.get(row.site), _what(trace, row, sites.get(row.site)), ended(trace, row)) for row in rows]
    return [_finding(evidence, group) for group in grouped(told, lambda one: (one.what, one.is_end))]


def ended(trace: Trace, row: RaisedCallRow) -> bool:
    """Return whether the exception ended the program."""
    error = uncaught_exceptions(trace).get(row.log)
    return error is not None and error.type == row.type and error.text.startswith(row.text)


def _finding(evidence: Evidence, group: list[_Told]) -> Timed:
    row, site, what, is_end = group[0]
    callers = list(dict.fromkeys(one.row.frames[-1] for one in group if one.row.frames))
    source = (source_line(site) if site is not None else None) or next(iter(callers), None)
    logs = len({one.row.log for one in group})
    then = "the program ended" if is_end else "the program went on"
    page = f"/steps/{row.step}?log={row.log}" + (f"&launch={row.launch}" if row.launch is not None else "")
    return row.time_unix_ns, Finding(
        kind="raised_call",
        severity="critical" if is_end else "warning",
        title=f"{what}{times(len(group))}{in_logs(logs)}; {then}",
        rule=rule_of(__doc__),
        evidence={
            "cause": cause_of(row),
            "exception": row.title,
            "statement": row.statement,
            "times": len(group),
            **logs_of(logs),
            "caller": callers[0].place if callers else None,
            "ended_the_program": is_end,
        },
        proof=_proof(row, [caller for caller in callers if caller != source]),
        links=[ProofLink(f"open launch {row.launch}", page)] if row.launch is not None else [],
        page=page,
        rank=evidence.rank_of(row.log),
        kernel=site.kernel if site is not None else None,
        source=source,
        **attributes(row, "step", "graph", "launch", "log"),
    )


def named_cause(told: str) -> str | None:
    """Return the first kind of cause that an exception's type or text names."""
    return next((name for name, sign in _CAUSES if sign.search(told)), None)


def cause_of(row: RaisedCallRow) -> str:
    """Return the kind of cause: the first kind that the type or the text names, else ``assertion`` or ``other``."""
    told = f"{row.type}: {row.text}"
    found = named_cause(told)
    is_check = "assert" in f"{told} {row.statement}".lower() or (row.statement or "").startswith("raise ")
    return found or ("assertion" if is_check else "other")


def _what(trace: Trace, row: RaisedCallRow, site: SiteRow | None) -> str:
    asserted = _ASSERTED.match(row.statement or "")
    if site is None:
        if asserted is not None:
            return f"{program_name(trace, row.graph, asserted[1])} is not what was compiled for: {row.title}"
        return f"A compiled graph raised {row.title} before its first launch"
    name = f"{operator_that_raised(site, cause_of(row))}{place(source_line(site))}"
    if not row.returned:
        return f"{name} raised {row.title}"
    if asserted is not None and asserted[1].startswith("buf"):
        return f"{name} did not return what was compiled for: {row.title}"
    return f"A check after {name} raised {row.title}"


def operator_that_raised(site: SiteRow, cause: str) -> str:
    """Return the operator of a launch that is most likely to have raised for a cause."""
    signs = _RAISING.get(cause, ())
    names = (name.rpartition("aten.")[2].partition(".")[0].strip("_") for name in operators(site))
    return next((name for name in names if any(sign in name for sign in signs)), operation(site))


def _proof(row: RaisedCallRow, callers: list[SourceLine]) -> list[str]:
    lines = [f"The generated code stopped at {row.statement}"] if row.statement is not None else []
    return lines + called_at(callers)
