"""Activation checkpointing runs a compiled forward pass again during the backward pass, and both times the forward pass
changes the same buffers of a module, in three or more steps. So a counter counts each batch twice, and a moving average
gets it twice. The graphs of both calls are those of one function, and they write the same memory, so that storages must
be tracked, as they are by default. Buffers that kernels write without reading them, such as caches, do not count,
because they have the same content after the second write. Only for information are the running statistics of
normalisation layers (running_mean, running_var, num_batches_tracked), which then move with nearly twice the momentum.
Change such buffers outside of the function that is checkpointed, or only if the forward pass is not a recomputation."""

from __future__ import annotations

from stepscope.viewer.findings.evidence import Evidence, Timed, attributes, grouped, names_text, rule_of
from stepscope.viewer.findings.values.operations import line_that_names, place
from stepscope.viewer.graphs.queries.graphs import site_rows
from stepscope.viewer.graphs.rows import SourceLine
from stepscope.viewer.overview.rows import Finding
from stepscope.viewer.text.formats import plural
from stepscope.viewer.values.queries.repeated_updates import RepeatedUpdate, repeated_updates

SUMMARY = "A recomputation in the backward pass changes buffers once more"
TITLE_IS_MEASURED = False

_STATISTICS = {"running_mean", "running_var", "num_batches_tracked"}


def find(evidence: Evidence) -> list[Timed]:
    """Return one finding per line and names of the buffers, which several modules of one class share."""
    updates = [(one, _source(evidence, one)) for one in repeated_updates(evidence.trace)]
    same = grouped(updates, lambda update: (update[0].log, update[0].names, update[1]))
    return [(of[0][0].start_ns, _finding(evidence, *of[0], len(of))) for of in same]


def _source(evidence: Evidence, one: RepeatedUpdate) -> SourceLine | None:
    site = site_rows(evidence.trace, [one.site])[0] if one.site is not None else None
    return line_that_names(site, one.names[0]) if site is not None else None


def _finding(evidence: Evidence, one: RepeatedUpdate, source: SourceLine | None, graphs: int) -> Finding:
    are_statistics = all(name.rpartition(".")[2] in _STATISTICS for name in one.names)
    is_are = "are" if len(one.names) > 1 else "is"
    what = f"passes of {graphs:,} graphs" if graphs > 1 else "pass"
    advice = (
        "With a momentum of 0.1 each batch counts with 0.19. Normalisation that has no running statistics, such as"
        " GroupNorm, is not affected."
        if are_statistics
        else "Change the buffer outside of the function that is checkpointed."
    )
    return Finding(
        kind="repeated_update",
        severity="info" if are_statistics else "warning",
        title=f"{names_text(one.names)} {is_are} updated twice{place(source)}: in the forward pass, and by its"
        " recomputation in the backward pass",
        proof=[f"Activation checkpointing runs the forward {what} twice in {plural(one.steps, 'step')}. {advice}"],
        rule=rule_of(__doc__),
        evidence={"tensors": list(one.names), "steps": one.steps},
        page=f"/graphs/{one.graph}",
        rank=evidence.rank_of(one.log),
        source=source,
        **attributes(one, "step", "graph", "log"),
    )
