"""The values of a buffer before a launch differ from the values of the last write to it in the same call, although no
launch wrote it in between. Something else changed it: a stray write, another stream, or memory that is still in use.
The inputs of a custom operator are also read after it, so that an operator that changes them without declaring it is
found. There is one finding per operator, with the inputs that its first such launch changed. The result of an operator
that returns the memory of an input, which a later launch overwrites (hidden_alias), does not count."""

from __future__ import annotations

from collections.abc import Mapping

from stepscope.viewer.findings.evidence import (
    Evidence,
    Timed,
    attributes,
    names_text,
    open_launch,
    program_name,
    rule_of,
)
from stepscope.viewer.findings.values.describe import describe
from stepscope.viewer.findings.values.operations import place, source_line
from stepscope.viewer.graphs.queries.graphs import site_rows
from stepscope.viewer.graphs.queries.hidden_aliases import hidden_aliases, operator_name
from stepscope.viewer.overview.rows import Finding, ProofLink
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.values.queries.changed_values import ChangedValue, changed_values
from stepscope.viewer.values.queries.nonfinite import launch_place
from stepscope.viewer.values.queries.values import has_values

SUMMARY = "A buffer changed although no launch wrote it"
TITLE_IS_MEASURED = True

MOST_FINDINGS = 10
_COMPARED = ("min", "max", "mean", "std", "zero", "nan")
_HINT = "Record with --red-zones to see whether a launch writes past the end of its buffer."


def find(evidence: Evidence) -> list[Timed]:
    """Return one finding per buffer of a graph, at its first change, and one per custom operator."""
    if not has_values(evidence.trace):
        return []
    first: dict[tuple[int, str], ChangedValue] = {}
    in_other_memory = {one.site for one in hidden_aliases(evidence.trace) if one.overwritten_by is not None}
    for change in changed_values(evidence.trace):
        if change.written.site in in_other_memory:  # hidden_alias tells what overwrites it
            continue
        first.setdefault((change.graph, change.buffer or change.name), change)
    sites = {site.site: site for site in site_rows(evidence.trace, [one.before.site for one in first.values()])}
    groups: dict[object, dict[str, ChangedValue]] = {}
    for place_of_buffer, change in first.items():
        is_operator = change.before.moment == "after"
        key = (change.log, sites[change.before.site].kernel) if is_operator else place_of_buffer
        name = change.name if change.name.isidentifier() else change.buffer or change.name
        groups.setdefault(key, {}).setdefault(program_name(evidence.trace, change.graph, name), change)
    return [_finding(evidence.trace, changes) for changes in list(groups.values())[:MOST_FINDINGS]]


def _finding(trace: Trace, changes: Mapping[str, ChangedValue]) -> Timed:
    name, change = next(iter(changes.items()))
    names = names_text([one for one, other in changes.items() if other.before.launch == change.before.launch])
    row, written = change.before, change.written
    sites = {site.site: site for site in site_rows(trace, [row.site, written.site])}
    where = launch_place(trace, row.launch)
    kernel, verb = sites[row.site].kernel, "written by" if written.moment == "after" else "read at"
    was = f"{describe(name, written)}, {verb} launch {written.launch}: {sites[written.site].kernel}"
    hint = [] if row.moment == "after" else [_HINT]
    if row.moment == "after":
        line = place(source_line(sites[row.site]))
        title = (
            f"The custom operator {operator_name(kernel)} changed {names} without declaring it{line}, in {where.text}"
        )
    else:
        title = f"{name} changed before {where.text}, {kernel}, although no launch wrote it"
    return where.time_unix_ns, Finding(
        kind="changed_without_writer",
        severity="critical",
        title=title,
        proof=[was, f"{describe(name, row)}, {row.moment} launch {row.launch}", *hint],
        links=[
            ProofLink(f"open launch {row.launch}", f"/steps/{change.step}?log={change.log}&launch={row.launch}"),
            open_launch(written.launch),
        ],
        rule=rule_of(__doc__),
        evidence={
            "step": change.step,
            "launch": row.launch,
            "launch_in_step": where.ordinal,
            "of": where.of,
            "was": was,
            "is": describe(name, row),
            "before": attributes(written, *_COMPARED),
            "now": attributes(row, *_COMPARED),
            "times": change.times,
            "changed": [*changes],
            "custom_operator": operator_name(kernel) if row.moment == "after" else None,
        },
        page=f"/steps/{change.step}?log={change.log}&launch={row.launch}",
        rank=where.rank,
        launch=row.launch,
        kernel=kernel,
        argument=change.name,
        source=source_line(sites[row.site]),
        **attributes(change, "step", "graph", "buffer", "log"),
    )
