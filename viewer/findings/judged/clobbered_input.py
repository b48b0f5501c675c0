"""In a judged step, a launch read a buffer whose contents are not those that its producer wrote in the same call,
although no launch should have changed them: its memory was reused too early. Or a launch was given the memory of one
buffer for another that it writes. Or a launch read, or the call returned, a buffer to which nothing was written. A
launch that read such a buffer may be correct itself, because it got wrong inputs."""

from __future__ import annotations

from stepscope.viewer.findings.evidence import Evidence, Timed, attributes, grouped, program_name, rule_of
from stepscope.viewer.findings.judged.shown import links_of, page_of
from stepscope.viewer.findings.values.operations import source_line
from stepscope.viewer.graphs.queries.graphs import graph_label, graph_row, site_rows
from stepscope.viewer.judged.queries.judged import clobbered_inputs, launch_at
from stepscope.viewer.judged.rows import ClobberedInputRow
from stepscope.viewer.overview.rows import Finding
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.text.formats import plural

SUMMARY = "A launch read a buffer that is not what its producer wrote"
TITLE_IS_MEASURED = True


def find(evidence: Evidence) -> list[Timed]:
    """Return one finding per input of a launch site."""
    groups = grouped(clobbered_inputs(evidence.trace), lambda row: (row.log, row.graph, row.site, row.buffer))
    return [_finding(evidence, group) for group in groups]


def _finding(evidence: Evidence, group: list[ClobberedInputRow]) -> Timed:
    row, trace = group[0], evidence.trace
    (site,) = site_rows(trace, [row.site])
    name = program_name(trace, row.graph, row.buffer)
    producer, producer_kernel = _launch(trace, row, row.producer)
    writer, writer_kernel = _launch(trace, row, row.writer)
    if row.is_unwritten_result:
        what = f"returns {name}, to which nothing was written"
        proof = [f"The code allocates {row.buffer} for a value of the graph, and no launch of the call wrote to it."]
    elif not row.is_written:
        what = f"reads {name}, to which nothing was written"
        proof = [f"No launch of the call wrote to {row.buffer} before launch {row.launch}."]
    elif row.producer is not None and row.producer == row.writer:
        what = f"was given the memory of {name} for something else that it writes"
        proof = [f"Launch {producer} wrote a buffer that begins at the same address as {row.buffer}."]
    elif row.is_result:
        what = f"overwrites {name}, which the call returns as {producer_kernel or 'the caller'} wrote it"
        proof = [
            f"{_origin(producer)}, and launch {row.launch if writer is None else writer} wrote to its memory before the"
            " return."
        ]
    else:
        what = f"reads {name}, which is not what {producer_kernel or 'the caller'} wrote"
        proof = [f"{_origin(producer)}; in between, {_change(writer, writer_kernel)}."]
    seen = f"in {plural(len(group), 'call')}"
    graph = graph_row(trace, row.graph) if row.is_unwritten_result else None
    subject = f"graph {graph_label(row.graph, graph.compile_id, graph.phase)}" if graph is not None else row.kernel
    return row.time_unix_ns, Finding(
        kind="clobbered_input",
        severity="critical",
        title=f"{subject} {what}, {seen}",
        rule=rule_of(__doc__),
        evidence={
            **attributes(row, "step", "launch", "buffer", "is_written"),
            "producer": producer,
            "producer_kernel": producer_kernel,
            "writer": writer,
            "writer_kernel": writer_kernel,
            "calls": len(group),
        },
        page=page_of(row),
        rank=evidence.rank_of(row.log),
        source=None if row.is_unwritten_result else source_line(site),
        proof=proof,
        links=links_of(row),
        argument=row.buffer,
        kernel=None if row.is_unwritten_result else row.kernel,
        **attributes(row, "graph", "log"),
        **attributes(row, "step", "launch", "buffer"),
    )


def _origin(producer: int | None) -> str:
    return "The caller passed it" if producer is None else f"Launch {producer} wrote it"


def _change(writer: int | None, kernel: str | None) -> str:
    if writer is None:
        return "no launch is declared to write to its memory"
    return f"launch {writer} ({kernel}) wrote to its memory"


def _launch(trace: Trace, row: ClobberedInputRow, position: int | None) -> tuple[int | None, str | None]:
    return launch_at(trace, row.call, position) if position is not None else (None, None)
