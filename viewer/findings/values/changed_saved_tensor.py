"""A tensor that a forward pass saved for its backward pass had different values when the backward pass read it, so that
the gradients are those of another computation. Autograd notices changes that PyTorch's operators make in place, but no
changes through `.data`, NumPy, a kernel or another library, and none of an input of which the compiled graph saved a
view (https://github.com/pytorch/pytorch/issues/197887). The two passes are paired by the tensors that the forward pass
made and the backward pass read, or if there are none, if only one forward pass waited for the backward pass. The last
values that the forward pass read or wrote are compared with those that the backward pass read before it wrote them: by
digest if size and stride are the same, else by minimum, maximum and the numbers of zeros, NaN and infinities. Tensors
of which a part was not read, and replays of CUDA graphs, are not compared. Tensors of a log that changed in the same
step for the first time share a finding. Without values, it is a warning if `--check-eager` found that saved tensors had
changed, and compared no gradients for this reason."""

from __future__ import annotations

from itertools import islice

from stepscope.tracer.schema.constants import SAVED_CHANGED
from stepscope.viewer.findings.evidence import (
    Evidence,
    Timed,
    attributes,
    compile_page,
    grouped,
    open_launch,
    program_name,
    rule_of,
)
from stepscope.viewer.findings.values.describe import describe
from stepscope.viewer.findings.values.operations import place, source_line
from stepscope.viewer.graphs.queries.graphs import site_rows
from stepscope.viewer.overview.rows import Finding
from stepscope.viewer.speed.queries.graph_places import GraphPlace, graph_places
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.text.formats import basename, plural
from stepscope.viewer.values.queries.layer_checks import LayerCheckRow, layer_checks
from stepscope.viewer.values.queries.nonfinite import launch_place
from stepscope.viewer.values.queries.saved_for_backward import ChangedSaved, changed_saved
from stepscope.viewer.values.queries.values import has_values

SUMMARY = "A tensor changed between its forward and its backward pass"
TITLE_IS_MEASURED = True

MOST_CHANGES, MOST_LINES = 100, 8


def find(evidence: Evidence) -> list[Timed]:
    """Return one finding for all tensors of a log that changed in the same step for the first time; without values, one
    for each compiled graph of which a check noticed that they had."""
    trace = evidence.trace
    if not has_values(trace):
        rows = [row for row in layer_checks(trace) if SAVED_CHANGED in (row.why or "")]
        return [_noticed(group) for group in grouped(rows, lambda row: (row.log, row.compile_id))]
    changes = list(islice(changed_saved(trace), MOST_CHANGES))
    begun: dict[tuple[int, str], int] = {}
    for one in changes:
        begun.setdefault((one.log, _name(trace, one)), one.step)
    groups = grouped(changes, lambda one: (one.log, begun[one.log, _name(trace, one)]))
    return [_finding(trace, group) for group in groups]


def _noticed(group: list[LayerCheckRow]) -> Timed:
    row, why = group[0], group[0].why or ""
    count = why.partition(f" {SAVED_CHANGED}")[0]
    frame = row.frame
    name = f"{frame.function} ({basename(frame.file)}:{frame.line})" if frame else "a compiled graph"
    return row.time_unix_ns or 0, Finding(
        kind="changed_saved_tensor",
        severity="warning",
        title=f"{count} that the forward pass of {name} saved changed before the backward pass",
        proof=[
            "The gradients are those of another computation, so they were not compared with eager mode.",
            f"{why.rpartition('; ')[2].capitalize()}.",
        ],
        rule=rule_of(__doc__),
        evidence={"calls": [one.call for one in group][:MOST_CHANGES], "compile_id": row.compile_id},
        page=compile_page(row.log, row.compile_id) if row.compile_id else "/",
        rank=row.rank,
        source=frame,
        log=row.log,
    )


def _name(trace: Trace, one: ChangedSaved) -> str:
    """Return the name of the tensor in the program, from the graph that knows it."""
    name = program_name(trace, one.forward, one.saved_as)
    return name if name != one.saved_as else program_name(trace, one.backward, one.read_as)


def _finding(trace: Trace, changes: list[ChangedSaved]) -> Timed:
    first = changes[0]
    places = graph_places(trace, [first.forward, first.backward])
    names = list(dict.fromkeys(_name(trace, one) for one in changes))
    sites = {one.site: one for one in site_rows(trace, [first.saved.site, first.read.site])}
    was, reader = sites[first.saved.site], sites[first.read.site]
    where, source = launch_place(trace, first.read.launch), source_line(reader) or source_line(was)
    verb = "written by" if first.saved.moment == "after" else "read by"
    saved, read = describe(first.saved_as, first.saved), describe(first.read_as, first.read)
    called, ran = (places[graph] for graph in (first.forward, first.backward))
    between = f"between {called.text} and {ran.text}"
    by_program = first.writer is None and called.source is not None and ran.source is not None
    when = between if by_program else f"before the backward pass read it{place(source)}"
    proof = [
        f"{saved}, {verb} launch {first.saved.launch}: {was.kernel} in the forward pass",
        f"{read}, read by launch {first.read.launch}: {reader.kernel} in the backward pass",
        *(
            [f"launch {first.writer} wrote it in between"]
            if first.writer is not None
            else _by_other_code("in between" if by_program else between, _lines(called, ran))
        ),
    ]
    others = len(names) - 1
    if others:
        proof.append(f"{plural(others, 'other tensor')} changed in the same way: {', '.join(names[1:4])}")
    return where.time_unix_ns, Finding(
        kind="changed_saved_tensor",
        severity="critical",
        title=f"{names[0]} was saved for the backward pass and changed {when}",
        proof=proof,
        links=[
            open_launch(first.read.launch),
            open_launch(first.saved.launch),
        ],
        rule=rule_of(__doc__),
        evidence={
            "tensors": names,
            "was": saved,
            "is": read,
            "saved_by_launch": first.saved.launch,
            "written_by_launch": first.writer,
            "forward_graph": first.forward,
            "steps": sorted({one.step for one in changes}),
        },
        page=f"/steps/{first.step}?log={first.log}&launch={first.read.launch}",
        rank=where.rank,
        launch=first.read.launch,
        kernel=reader.kernel,
        argument=first.read_as,
        buffer=first.read_as,
        graph=first.backward,
        source=source,
        **attributes(first, "step", "log"),
    )


def _by_other_code(between: str, lines: list[str]) -> list[str]:
    changed = f"no recorded launch wrote it {between}: other code changed it in place"
    return [f"{changed}; the lines in between are", *lines] if lines else [changed]


def _lines(called: GraphPlace, ran: GraphPlace) -> list[str]:
    """Return the statements of the program between a compiled call and the backward pass, if these are few."""
    if called.source is None or ran.after_line != called.source.line:
        return []
    lines = enumerate(map(str.strip, ran.lines_between), ran.after_line + 1)
    file = basename(called.source.file)
    said = [f"{file}:{number}  {text}" for number, text in lines if text and not text.startswith("#")]
    return said if len(said) <= MOST_LINES else []
