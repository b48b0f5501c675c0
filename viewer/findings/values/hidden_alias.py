"""A custom operator returned a tensor in the memory of one of its inputs, although its schema and its fake kernel
promise a tensor of its own. Generated code takes the two for different memory, so it may overwrite one of them while
the other is still needed. The output is in no memory that the call first used, and it has the address or, where the
log has values, the bits of exactly one input. Operators of PyTorch, and operators that declare that they change an
input, do not count. The finding is critical if a later launch of the graph overwrites one of the two while a launch, a
result of the graph or the caller needs the other, and a warning otherwise."""

from __future__ import annotations

from stepscope.viewer.findings.evidence import Evidence, Timed, open_launch, program_name, rule_of
from stepscope.viewer.findings.values.operations import fused, place, source_line
from stepscope.viewer.graphs.queries.graphs import site_rows
from stepscope.viewer.graphs.queries.hidden_aliases import HiddenAlias, hidden_aliases
from stepscope.viewer.overview.rows import Finding, ProofLink
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.values.queries.nonfinite import launch_place
from stepscope.viewer.web.addresses import slug

SUMMARY = "An operator returns the memory of an input"
TITLE_IS_MEASURED = True


def find(evidence: Evidence) -> list[Timed]:
    """Return one finding per launch site."""
    return [_finding(evidence.trace, one) for one in hidden_aliases(evidence.trace)]


def _finding(trace: Trace, one: HiddenAlias) -> Timed:
    wanted = [one.site, *([one.overwritten_by] if one.overwritten_by is not None else [])]
    sites = {site.site: site for site in site_rows(trace, wanted)}
    site, where = sites[one.site], launch_place(trace, one.launch)
    name, source = program_name(trace, one.graph, one.input), source_line(site)
    writer = sites[one.overwritten_by] if one.overwritten_by is not None else None
    then = f", and {fused(writer)}{place(source_line(writer))} overwrites it" if writer is not None else ""
    return where.time_unix_ns, Finding(
        kind="hidden_alias",
        severity="critical" if writer is not None else "warning",
        title=f"{one.kernel.removeprefix('torch.ops.').removesuffix('.default')}{place(source)} returns the memory of"
        f" its input {name} as {one.output}, although its schema promises new memory{then}",
        proof=[f"{one.output} is in the memory of {one.input} from {where.text} on"],
        links=[
            open_launch(one.launch),
            ProofLink(f"open {one.output}", f"/graphs/{one.graph}/buffers/{slug(one.output.partition('[')[0])}"),
        ],
        rule=rule_of(__doc__),
        evidence={"input": one.input, "output": one.output, "overwritten_by": writer.kernel if writer else None},
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
