"""A forward call that ran again in a backward pass, as activation checkpointing lets it, left different activations
than the first time, so that the gradients belong to another forward pass. The two calls are those of one graph in one
step that share the most inputs; if several do, none is compared. An activation counts as different if its bits and its
statistics differ: those of floating-point tensors by more than a thousandth. Inputs that the call changes, such as
running means, do not count. The finding names the tensor at which the two calls first differ. Random numbers that are
not restored, a changed input, and state that the first call changed are usual causes. There is one finding per line of
the model, or per graph if the line is unknown. A compile whose backward graph draws random numbers that its forward
graph has drawn already, as its partitioner may decide, is told from its graphs, without values."""

from __future__ import annotations

import re
from collections.abc import Sequence

from stepscope.viewer.findings.evidence import (
    Evidence,
    Timed,
    attributes,
    grouped,
    names_text,
    open_launch,
    program_name,
    rule_of,
)
from stepscope.viewer.findings.values.describe import describe
from stepscope.viewer.findings.values.drawn_again import of_drawn_again
from stepscope.viewer.findings.values.operations import fused, operators, place, plain, source_line
from stepscope.viewer.graphs.queries.graphs import site_rows, sites_of_graph
from stepscope.viewer.graphs.rows import SiteRow
from stepscope.viewer.overview.rows import Finding
from stepscope.viewer.speed.queries.graph_places import graph_places
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.text.formats import basename, plural
from stepscope.viewer.values.queries.nonfinite import launch_place
from stepscope.viewer.values.queries.recomputed_calls import OtherActivations, OtherValue, other_activations
from stepscope.viewer.values.queries.values import has_values

SUMMARY = "A recomputed activation is not that of the forward pass"
TITLE_IS_MEASURED = True

_SEEDS, _OF_SEEDS = "inductor_seeds", "inductor_lookup_seed"
"""FX nodes of Inductor that draw the seeds of a graph, and that read one of them."""
_PRESERVES_NOTHING = re.compile(r"\bpreserve_rng_state\s*=\s*False\b")
_NOT_PRESERVED = (
    "With preserve_rng_state=False, checkpoint does not restore the state of the random numbers before it runs the"
    " function again: leave this argument out."
)
_RANDOM = ("rand", "dropout", "bernoulli", "normal", "seed", "multinomial")


def find(evidence: Evidence) -> list[Timed]:
    """Return one finding per log and line of the model, at the first call that ran again and differs, and one per
    compiled function that draws random numbers anew."""
    again = [*of_drawn_again(evidence, rule_of(__doc__))]
    return [*again, *(_of_calls(evidence.trace) if has_values(evidence.trace) else ())]


def _of_calls(trace: Trace) -> list[Timed]:
    others = other_activations(trace)
    lines = {one.site: source_line(one) for one in site_rows(trace, sorted({one.kept.now.site for one in others}))}
    groups = grouped(others, lambda one: (one.log, lines[one.kept.now.site] or one.graph))
    return [_finding(trace, group) for group in groups]


def _is_random(site: SiteRow) -> bool:
    names = [*operators(site), site.kernel, site.operator or ""]
    return any(word in name for name in names for word in _RANDOM)


def _drawing(trace: Trace, site: SiteRow) -> list[SiteRow]:
    """Return the launches that make random numbers of the seeds which a launch draws for a graph, as Inductor does for
    several operators at once; nothing for other launches."""
    if not any(node.startswith(_SEEDS) for node in site.fx_nodes):
        return []
    rows = site_rows(trace, sites_of_graph(trace, site.graph))
    return [row for row in rows if any(node.startswith(_OF_SEEDS) for node in row.fx_nodes)]


def _random_names(sites: Sequence[SiteRow]) -> str:
    """Return the operators that draw random numbers, as in ``dropout and rand``."""
    names = dict.fromkeys(plain(name.rpartition(".")[2]) for site in sites for name in operators(site))
    return names_text([name for name in names if any(word in name for word in _RANDOM)]) or "random operators"


def _values(one: OtherValue) -> str:
    return (
        f"{describe(one.name, one.now)}, at launch {one.now.launch} in the backward pass; the forward pass had"
        f" {describe(one.name, one.was)} at launch {one.was.launch}"
    )


def _of_checkpoint(trace: Trace, graph: int) -> list[str]:
    """Return where the program calls the function that ran again, and the argument that lets it draw anew."""
    source = graph_places(trace, [graph])[graph].source
    if source is None or not source.code:
        return []
    told = [f"The program calls this function at {basename(source.file)}:{source.line}: {source.code}"]
    return [*told, _NOT_PRESERVED] if _PRESERVES_NOTHING.search(source.code) else told


def _why(trace: Trace, one: OtherActivations, site: SiteRow) -> str:
    if one.is_input:
        return f"its input {program_name(trace, one.graph, one.cause.name)} had changed"
    if _is_random(site):
        return "it drew other random numbers"
    return f"the two differ from {fused(site)} on"


def _finding(trace: Trace, others: list[OtherActivations]) -> Timed:
    first = others[0]
    cause, kept = first.cause, first.kept
    sites = {one.site: one for one in site_rows(trace, [cause.now.site, kept.now.site])}
    site, where = sites[kept.now.site], launch_place(trace, kept.now.launch)
    drawing = _drawing(trace, site)
    source = source_line(drawing[0] if drawing else site)
    what = f"the seeds of {_random_names(drawing)}" if drawing else f"the output of {fused(site)}"
    shown = [cause, kept] if cause.now.value != kept.now.value else [kept]
    proof = [*_of_checkpoint(trace, first.graph), *(map(_values, shown) if not drawing else ())]
    if len(others) > 1:
        count = len({one.graph for one in others})
        graphs = plural(count, "graph") if count > 1 else "this graph"
        proof.append(f"{plural(len(others), 'call')} of {graphs} ran again with different activations")
    return where.time_unix_ns, Finding(
        kind="other_recomputation",
        severity="critical",
        title=f"The backward pass recomputed {kept.name}, {what}{place(source)}, with values that"
        f" differ from those of the forward pass: {_why(trace, first, sites[cause.now.site])}",
        proof=proof,
        links=[
            open_launch(kept.now.launch),
            open_launch(kept.was.launch),
        ],
        rule=rule_of(__doc__),
        evidence={
            "was": describe(kept.name, kept.was),
            "is": describe(kept.name, kept.now),
            "first_difference": describe(cause.name, cause.now),
            "differs_from_launch": cause.now.launch,
            "is_input": first.is_input,
            "calls": len(others),
        },
        page=f"/steps/{first.step}?log={first.log}&launch={kept.now.launch}",
        rank=where.rank,
        launch=kept.now.launch,
        kernel=site.kernel,
        argument=kept.name,
        buffer=kept.name,
        source=source,
        **attributes(first, "step", "log", "graph"),
    )
