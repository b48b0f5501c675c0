"""A compiled function is called for one small input after the other. At least 1,000 calls of a graph without gradients,
all at one line of the program, follow another call of it in their thread; in the median the kernels of a call take less
than 200 us, and from one call to the next there are less than 2 ms. At least 40 % of the time is outside of kernels: of
that in calls, and of that between them for which the thread computes, by the medians and without the recorder's own
time between calls. Calls for all inputs at once are possible only if no call needs the result of an earlier one: in at
least 90 % of the calls, all inputs have storages that earlier calls had as inputs, too, such as those of the rows of a
table, and the graph does not write to its inputs. Tensors that are new in each call, as those of a request to a server
or of a text that grows, may depend on results, and have no finding. There is none if one of the kinds host_bound or
uncompiled_work is about the same log, nor on a GPU. It is always information, because the program may have a reason to
call for each input."""

from __future__ import annotations

from functools import partial

from stepscope.viewer.findings.evidence import Evidence, Timed, rule_of
from stepscope.viewer.findings.speed import host_bound
from stepscope.viewer.findings.speed.costly_gaps import costly_gaps
from stepscope.viewer.findings.speed.costs import Slowness, one_per_cause
from stepscope.viewer.overview.rows import Finding
from stepscope.viewer.speed.queries.graph_places import GraphPlace, graph_places
from stepscope.viewer.speed.queries.runs import run_splits
from stepscope.viewer.speed.queries.small_calls import (
    RepeatedCalls,
    calls_with_known_inputs,
    is_called_at_one_line,
    repeated_calls,
)
from stepscope.viewer.speed.queries.verdict import share_text
from stepscope.viewer.speed.rows import RunSplit
from stepscope.viewer.text.formats import basename, format_ns

SUMMARY = "A compiled function is called for one small input after the other"

LEAST_CALLS, MOST_KERNELS_NS, MOST_GAP_NS, LEAST_SHARE, MOST_CALLS = 1_000, 200_000, 2_000_000, 0.4, 0.9
_ADVICE = (
    "One call for all of them, with a batch dimension, takes this time once. If a call needs the result of the one"
    " before, this is not possible."
)


def find(evidence: Evidence) -> list[Timed]:
    """Return one finding for all logs that call the same function at the same line."""
    found = [one for one in repeated_calls(evidence.trace, LEAST_CALLS) if _is_small(evidence, one)]
    if not found:
        return []
    told = {run.log for run, _ in costly_gaps(evidence.trace)}
    told |= {finding.log for _, finding in host_bound.find(evidence) if finding.log is not None}
    runs = {run.log: run for run in run_splits(evidence.trace) if not run.on_device and run.log not in told}
    places = graph_places(evidence.trace, [one.graph for one in found])
    return one_per_cause(evidence, [_slowness(evidence, runs[one.log], one, places[one.graph])
                                    for one in found if one.log in runs])  # fmt: skip


def _is_small(evidence: Evidence, one: RepeatedCalls) -> bool:
    return (
        one.kernels_ns < MOST_KERNELS_NS
        and one.gap_ns < MOST_GAP_NS
        and one.outside_ns >= LEAST_SHARE * one.whole_ns
        and is_called_at_one_line(evidence.trace, one.graph)
        and calls_with_known_inputs(evidence.trace, one.graph) >= MOST_CALLS * one.calls
    )


def _slowness(evidence: Evidence, run: RunSplit, one: RepeatedCalls, place: GraphPlace) -> Slowness:
    return Slowness((place.frame, place.source), run, one.outside_ns, partial(_finding, run, one, place))


def _finding(run: RunSplit, one: RepeatedCalls, place: GraphPlace) -> Finding:
    source = place.source
    at = f" at {basename(source.file)}:{source.line}" if source else ""
    return Finding(
        kind="small_calls",
        severity="info",
        title=f"{place.frame or 'A graph'} is called {one.calls:,} times one after the other{at}, and"
        f" {share_text(one.outside_ns, one.whole_ns)} of this time passes outside of its kernels"
        f" ({format_ns(one.outside_ns)} of {format_ns(one.whole_ns)} for a call)",
        rule=rule_of(__doc__),
        evidence={
            "share": round(one.outside_ns / one.whole_ns, 4), "calls": one.calls, "call_ns": one.call_ns,
            "kernels_ns": one.kernels_ns, "computed_ns": one.computed_ns,
        },
        proof=[_ADVICE],
        page=f"/steps?log={run.log}",
        rank=run.rank,
        log=run.log,
        graph=one.graph,
        source=source,
    )  # fmt: skip
