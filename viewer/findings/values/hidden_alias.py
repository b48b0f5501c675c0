"""A custom operator returned a tensor in the memory of one of its inputs, although its schema and its fake kernel
promise a tensor of its own. Generated code takes the two for different memory, so it may overwrite one of them while
the other is still needed. The output has the address or, where the log has values and the output is in no memory that
the call first used, the bits of exactly one input; a storage that other code made in the memory of the input, such as
that of torch.from_numpy(), counts as well. Operators of PyTorch, and operators that declare that they change an input,
do not count. The finding is critical if a later launch of the graph overwrites one of the two while a launch, a result
of the graph or the caller needs the other, and a warning otherwise. There is one finding per operator, which names
first a launch site whose memory is overwritten."""

from __future__ import annotations

from stepscope.viewer.findings.evidence import (
    MOST_EXAMPLES,
    Evidence,
    Timed,
    grouped,
    in_logs,
    names_text,
    open_launch,
    program_name,
    rule_of,
)
from stepscope.viewer.findings.values.operations import fused, place, source_line
from stepscope.viewer.graphs.queries.graphs import site_rows
from stepscope.viewer.graphs.queries.hidden_aliases import HiddenAlias, hidden_aliases, operator_name
from stepscope.viewer.memory.queries.mismatches import lifetime_mismatches
from stepscope.viewer.memory.rows import LifetimeMismatchRow
from stepscope.viewer.overview.rows import Finding, ProofLink
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.text.formats import format_bytes, plural
from stepscope.viewer.values.queries.nonfinite import launch_place
from stepscope.viewer.web.addresses import slug

SUMMARY = "An operator returns the memory of an input"
TITLE_IS_MEASURED = True


def find(evidence: Evidence) -> list[Timed]:
    """Return one finding per operator."""
    return [_finding(evidence.trace, of_one) for of_one in grouped(hidden_aliases(evidence.trace), _operator)]


def _operator(one: HiddenAlias) -> str:
    return operator_name(one.kernel)


def _finding(trace: Trace, found: list[HiddenAlias]) -> Timed:
    one = next((one for one in found if one.overwritten_by is not None), found[0])
    overwriter = [one.overwritten_by] if one.overwritten_by is not None else []
    sites = {site.site: site for site in site_rows(trace, [*(one.site for one in found), *overwriter])}
    site, where = sites[one.site], launch_place(trace, one.launch)
    name, source = program_name(trace, one.graph, one.input), source_line(site)
    writer = sites[one.overwritten_by] if one.overwritten_by is not None else None
    then = f", and {fused(writer)}{place(source_line(writer))} overwrites it" if writer is not None else ""
    lines = dict.fromkeys(text for each in found if (text := place(source_line(sites[each.site])).strip(" ()")))
    late = _kept_buffers(trace, found)
    return where.time_unix_ns, Finding(
        kind="hidden_alias",
        severity="critical" if writer is not None else "warning",
        title=f"{_operator(one)}{place(source)} returns the memory of its input {name} as {one.output}, although its"
        f" schema promises new memory{then}",
        proof=[
            f"{one.output} is in the memory of {one.input} from {where.text} on.",
            *_others(found, [*lines]),
            *_kept(late),
            "The operator must return memory of its own, for example a clone.",
        ],
        links=[
            open_launch(one.launch),
            ProofLink(f"open {one.output}", f"/graphs/{one.graph}/buffers/{slug(one.output.partition('[')[0])}"),
        ],
        rule=rule_of(__doc__),
        evidence={
            "input": one.input,
            "output": one.output,
            "overwritten_by": writer.kernel if writer else None,
            "sites": len({each.site for each in found}),
            "lines": [*lines][:MOST_EXAMPLES],
            "kept_buffers": len(late),
        },
        page=f"/steps/{one.step}?log={one.log}&launch={one.launch}",
        rank=where.rank,
        log=one.log,
        step=one.step,
        graph=one.graph,
        launch=one.launch,
        kernel=one.kernel,
        buffer=one.output,
        argument=one.input,
        source=source,
    )


def _others(found: list[HiddenAlias], lines: list[str]) -> list[str]:
    sites, graphs = {one.site for one in found}, {one.graph for one in found}
    if len(sites) == 1:
        return []
    where = (
        f"{plural(len(sites), 'launch site')} of {plural(len(graphs), 'graph')}{in_logs(len({o.log for o in found}))}"
    )
    return [f"The operator does so at {where}{f' ({names_text(lines)})' if len(lines) > 1 else ''}."]


def _kept_buffers(trace: Trace, found: list[HiddenAlias]) -> list[LifetimeMismatchRow]:
    """Return the buffers that the results of the operator keep for longer than the schedule expects."""
    inputs = {(one.graph, one.input) for one in found}
    late = [row for row in lifetime_mismatches(trace) if (row.graph, row.buffer) in inputs]
    return [*{(row.graph, row.buffer): row for row in late if row.kind == "missing_death"}.values()]


def _kept(late: list[LifetimeMismatchRow]) -> list[str]:
    if not late:
        return []
    size = sum(row.storage_bytes or 0 for row in late)
    many = len(late) > 1
    return [
        f"{plural(len(late), 'buffer')} ({format_bytes(size)}) {'are' if many else 'is'} freed later than expected,"
        f" because the results of the operator keep {'them' if many else 'it'}."
    ]
