"""A launch reads memory that was allocated in the call of the graph and that no launch had written. Its content is
arbitrary, and so is everything computed from it. The finding is critical. It names an operator of the program's own
that is missing in the generated code, because the compiler left it out: it does not declare that it changes its
argument."""

from __future__ import annotations

from stepscope.viewer.findings.evidence import Evidence, Timed, attributes, grouped, open_buffer, rule_of
from stepscope.viewer.findings.values.operations import operation, place, source_line
from stepscope.viewer.graphs.queries.argument_facts import UninitialisedRead, uninitialised_reads
from stepscope.viewer.graphs.queries.graphs import site_rows
from stepscope.viewer.graphs.queries.unwritten_results import left_out
from stepscope.viewer.overview.rows import Finding, ProofLink
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.text.formats import plural
from stepscope.viewer.values.queries.nonfinite import launch_place

SUMMARY = "Uninitialised memory is read"
TITLE_IS_MEASURED = True


def find(evidence: Evidence) -> list[Timed]:
    """Return one finding per buffer of a graph."""
    found = [read for read in uninitialised_reads(evidence.trace) if not read.is_empty]
    return [
        _finding(evidence.trace, group) for group in grouped(found, lambda read: (read.graph, read.buffer or read.name))
    ]


def _finding(trace: Trace, group: list[UninitialisedRead]) -> Timed:
    first = group[0]
    buffer = first.buffer or first.name
    (site,), where = site_rows(trace, [first.site]), launch_place(trace, first.launch)
    missing = left_out(trace, first.graph)
    operator = f"; {missing[0]}{place(missing[1])} was left out of the generated code" if missing else ""
    source = (missing[1] if missing else None) or source_line(site)
    return where.time_unix_ns, Finding(
        kind="uninitialised_read",
        severity="critical",
        title=f"{operation(site)}{place(source_line(site))} reads uninitialised memory: {first.name}{operator}",
        proof=[f"{plural(sum(read.launches for read in group), 'launch')}, first in {where.text}: {site.kernel}"],
        links=[
            ProofLink(f"open launch {first.launch}", f"/steps/{first.step}?log={first.log}&launch={first.launch}"),
            *open_buffer(trace, first.graph, buffer),
        ],
        rule=rule_of(__doc__),
        evidence={
            **attributes(first, "step", "launch"),
            "launch_in_step": where.ordinal,
            "of": where.of,
            "role": "in",
            "held": "uninitialised",
            "launches": sum(read.launches for read in group),
            "sites": len({read.site for read in group}),
            "fx_nodes": site.fx_nodes[:50],
            "aten": site.aten[:50],
            "left_out": missing[0] if missing else None,
        },
        page=f"/steps/{first.step}?log={first.log}&launch={first.launch}",
        rank=where.rank,
        kernel=site.kernel,
        argument=first.name,
        source=source,
        **attributes(first, "step", "graph", "launch", "buffer", "log"),
    )
