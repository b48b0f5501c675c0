"""The recorder could not record something and logged the reason; or a process exited with code 0 without ending its
log; or a worker of a process that ended well was ended between launches, as pools end their workers. In these cases its
last work may be missing. There is one finding per subject and reason, whatever names and numbers are in them, and per
process. Three gaps are left out: a graph from a warm cache has no memory estimate, which only its pages say; data that
is missing because a device failed belongs to the finding of that failure; and launches that a C++ wrapper printed are
not missing."""

from __future__ import annotations

import re

from stepscope.tracer.schema.constants import CACHED_ESTIMATE, CPP_WRAPPER, DEVICE_FAILED
from stepscope.viewer.crash.queries.process_ends import process_ends, within_a_launch
from stepscope.viewer.findings.crash.processes import is_printed, may_have_left, recorded_nothing, unfinished
from stepscope.viewer.findings.evidence import MOST_EXAMPLES, Evidence, Timed, grouped, rule_of
from stepscope.viewer.overview.queries.damage import not_recorded
from stepscope.viewer.overview.rows import Finding, NotRecorded, RunRow
from stepscope.viewer.text.alike import often, pattern_of

SUMMARY = "Something was not recorded"

_LAST = 2**63
_COMPARED = re.compile(r"comparison of .* with eager mode")


def find(evidence: Evidence) -> list[Timed]:
    """Return one finding per subject and reason over the run. They have no time and are last."""
    printed = {run.pid for run in evidence.runs if is_printed(run)}
    seen = {run.log for run in evidence.runs if run.pid in printed}
    rows = [
        row
        for row in not_recorded(evidence.trace)
        if row.what != CACHED_ESTIMATE
        and not row.why.startswith(DEVICE_FAILED)
        and not (row.why == CPP_WRAPPER and row.log in seen)
    ]
    said = [(_LAST, _finding(group)) for group in grouped(rows, _cause)]
    ends = process_ends(evidence.trace)
    within = within_a_launch(evidence.trace)
    left = [run for run in unfinished(evidence.runs, ends) if may_have_left(run, evidence.runs, ends, within)]
    return said + [(_LAST, _child(run)) for run in left if not recorded_nothing(run)]


def _cause(row: NotRecorded) -> str:
    return pattern_of(f"{_COMPARED.sub('comparison', row.what)}: {row.why}")


def _finding(group: list[NotRecorded]) -> Finding:
    first, count = group[0], sum(row.count for row in group)
    others = [what for what in dict.fromkeys(row.what for row in group) if what != first.what]
    times = often(count, len({(row.what, row.why) for row in group}))
    graphs = list(dict.fromkeys(row.graph for row in group if row.graph is not None))
    return Finding(
        kind="not_recorded",
        severity="info",
        title=f"Not recorded{f' ({times})' if times else ''}: {first.what} ({first.why})",
        proof=[f"also the {what}" for what in others[:MOST_EXAMPLES] if _COMPARED.match(what)],
        rule=rule_of(__doc__),
        evidence={"times": count, "graphs": graphs[:MOST_EXAMPLES]},
        page=f"/graphs/{graphs[0]}" if graphs else "/problems",
        graph=graphs[0] if graphs else None,
        log=first.log,
    )


def _child(run: RunRow) -> Finding:
    forked = "forked " if run.forked else ""
    return Finding(
        kind="not_recorded",
        severity="info",
        title=f"Not recorded: the end of {forked}process {run.pid} (it wrote no end record)",
        rule=rule_of(__doc__),
        evidence={"pid": run.pid, "parent_pid": run.parent_pid},
        page=f"/records?log={run.log}",
        rank=run.rank,
        log=run.log,
    )
