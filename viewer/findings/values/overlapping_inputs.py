"""Two inputs of a graph overlap in a later call, although they were separate in the first call, and the graph changes
one of them. The graph was compiled for separate inputs, and Dynamo has no guard for the overlap, so that a launch may
read the other input before it is changed where eager mode reads it after, or the reverse. The recorder describes the
arguments of a graph again in the next call once inputs share storages in another way than before, and the finding names
the step of this call. Inputs that share a storage without an element in common are not reported. It is a warning,
because the order may be right by chance."""

from __future__ import annotations

from stepscope.viewer.findings.evidence import Evidence, Timed, attributes, open_launch, program_name, rule_of
from stepscope.viewer.findings.values.operations import place, source_line
from stepscope.viewer.findings.values.overlap import do_overlap
from stepscope.viewer.graphs.queries.graphs import site_rows
from stepscope.viewer.graphs.queries.overlapping_inputs import OverlappingInputs, inputs_on_one_storage
from stepscope.viewer.graphs.queries.program_names import program_names
from stepscope.viewer.overview.rows import Finding
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.values.queries.nonfinite import launch_place

SUMMARY = "Inputs that were separate when a graph was compiled overlap"
TITLE_IS_MEASURED = True

_OF_VIEWS = ("name", "dtype", "size", "stride", "offset")


def find(evidence: Evidence) -> list[Timed]:
    """Return one finding per input that a graph changes."""
    trace, found = evidence.trace, dict[tuple[int, str], OverlappingInputs]()
    for pair in inputs_on_one_storage(trace):
        are_inputs = {pair.written.name, pair.read.name} <= _inputs(trace, pair.graph)
        if are_inputs and do_overlap(pair.written, pair.read, if_unknown=False):
            found.setdefault((pair.graph, pair.written.name), pair)
    return [_finding(trace, pair) for pair in found.values()]


def _inputs(trace: Trace, graph: int) -> set[str]:
    """Return the inputs of a graph. A buffer that it returns also has a name in the program, and may reuse the memory
    of an input."""
    names = program_names(trace, graph).items()
    return {name for name, known in names if known.kind != "output" and not name.startswith("buf")}


def _finding(trace: Trace, pair: OverlappingInputs) -> Timed:
    (site,), where = site_rows(trace, [pair.site]), launch_place(trace, pair.launch)
    written, read = (program_name(trace, pair.graph, view.name) for view in (pair.written, pair.read))
    source = source_line(site)
    return where.time_unix_ns, Finding(
        kind="overlapping_inputs",
        severity="warning",
        title=f"Inputs {written} and {read} overlap in step {pair.step}, although the graph, which changes the first"
        f"{place(source)}, was compiled for separate inputs",
        proof=[
            f"In {where.text}, {written} begins at element {pair.written.offset or 0} of a storage, and {read} at"
            f" element {pair.read.offset or 0} of it.",
            f"The results may differ from those of eager mode. Pass a copy of {read}, or of {written}.",
        ],
        links=[open_launch(pair.launch)],
        rule=rule_of(__doc__),
        evidence={side: attributes(getattr(pair, side), *_OF_VIEWS) for side in ("written", "read")},
        page=f"/steps/{pair.step}?log={pair.log}&launch={pair.launch}",
        rank=where.rank,
        log=pair.log,
        step=pair.step,
        graph=pair.graph,
        launch=pair.launch,
        kernel=site.kernel,
        buffer=pair.written.name,
        argument=pair.read.name,
        source=source,
    )
