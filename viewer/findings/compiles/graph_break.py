"""Dynamo ended a graph before the end of the function and ran a piece of the function in Python, or the whole function
where it could not continue after that piece. There is one finding per cause and source line over the whole run, which
also lists the graph breaks and recompiles of library functions that are called at this line, and the recompiles of the
rest of the function that are due to an object that Python held at the break. A tensor that the graph made and that the
rest of the function takes as input is held by the Python frame until the function returns. The finding gives the size
of such a tensor where launches ran after its last use. Tensors that a backward or a later call used, or that were never
freed, are left out; a tensor that the function also returns cannot be told apart. The finding also names tensors of at
least the same size that the rest of the function used first: the code after the graph made them, or the caller holds
them as arguments. A break that holds nothing and takes much of each step has a finding of the kind break_in_hot_loop or
synchronizing_call instead. The finding is information. It is a warning if the recompiles that it lists took at least a
second and 20 % of the time of all steps, or if no function of a log was compiled to a graph, because each ran in Python
like this or was left without operators, so that torch.compile had no effect there. In the latter case it gives the
medians of the time of a step and of its part outside of optimizers of torch.optim and of waiting for a DataLoader, if
there are four steps. For other breaks it gives the share of a typical step that the host work at the break takes; for
one where Python runs the whole function, it gives the share of the time between the calls of compiled graphs in which
the function runs. A break in code of PyTorch that the program calls is said to be one, because the program cannot
change that code. There is no finding for the break before the step of an optimizer of torch.optim that PyTorch compiles
by itself, unless a tensor is held or a frame recompiled there. A break that several logs have, such as those of ranks,
belongs to none of them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from stepscope.viewer.compiles.queries.compiles import logs_without_effect
from stepscope.viewer.compiles.queries.events import CompileEvent
from stepscope.viewer.findings.compiles.called_at_breaks import called_at_breaks, explained, what_is_called
from stepscope.viewer.findings.evidence import (
    MOST_EXAMPLES,
    Evidence,
    Timed,
    attributes,
    compile_page,
    grouped,
    in_logs,
    logs_of,
    place_of,
    rule_of,
    times,
)
from stepscope.viewer.findings.speed.costly_gaps import gaps_with_fallbacks
from stepscope.viewer.findings.speed.costs import LEAST_STEPS, amount, facts_of, steady_runs
from stepscope.viewer.findings.speed.hot_breaks import hot_breaks
from stepscope.viewer.ingest.torch_trace.torch_text import is_of_torch
from stepscope.viewer.memory.queries.graphs import has_lifetimes
from stepscope.viewer.overview.rows import Finding, ProofLink, Severity
from stepscope.viewer.speed.queries.plain_steps import PlainSteps, plain_steps
from stepscope.viewer.speed.rows import RunSplit
from stepscope.viewer.text.formats import basename, format_bytes, plural

if TYPE_CHECKING:
    from stepscope.viewer.memory.queries.graph_breaks import HeldBuffer

SUMMARY = "A function was split at a graph break"

_MOST_PROOFS = 2
_OF_TORCH = "The break is in PyTorch's own code, which this line calls."
_OPTIMIZER_STEP = re.compile(r"function `(?!LBFGS|SparseAdam)\w+\.step` in file `[^`]*[/\\]torch[/\\]optim[/\\]")
_STEP_CALLED = re.compile(r"\.step\(")
_BREAK_CALLED = "Call to `torch._dynamo.graph_break()`"
_Place = tuple[str | None, int | None]


def find(evidence: Evidence) -> list[Timed]:
    """Return one finding per cause and line of source."""
    called = called_at_breaks(evidence)
    events = [event for event in evidence.compile_events("graph_break") if not called.has(event)]
    held = None
    if events and has_lifetimes(evidence.trace):
        from stepscope.viewer.memory.queries.graph_breaks import held_across_breaks  # the import takes time

        held = held_across_breaks(evidence.trace)
    costly = {(one.events[0].file, one.events[0].line) for one in hot_breaks(evidence)} if events else set()
    small = _small_parts(evidence, events, costly) if events else {}
    groups = grouped(events, _cause)
    without_effect = logs_without_effect(evidence.trace) if events else set()
    plain = {log: plain_steps(evidence.trace, log) for log in without_effect}
    found = []
    causes = Counter((group[0].file, group[0].line) for group in groups)
    for group in groups:
        place = group[0].file, group[0].line
        part = small.pop(place, None)  # the share is that of the line, so its first break tells it
        if part is not None and causes[place] > 1:
            part = part._replace(
                what=part.what.replace("this break", f"the {causes[place]:,} graph breaks of this line")
            )
        time_ns, finding = _finding(group, held, plain, part)
        at_break = called.events.get(place, ())
        if place not in costly and not _is_usual(group[0], finding, at_break):
            there = what_is_called(evidence.trace, at_break)
            severity: Severity = "warning" if there.is_costly else finding.severity
            proof = [*finding.proof, *explained(group[0]), *_of_torch(group[0]), *there.proof]
            found.append((time_ns, replace(finding, severity=severity, proof=proof)))
        elif place in costly and finding.proof:
            found.append((time_ns, finding))
    return found


class _Part(NamedTuple):
    """What a break that is not costly takes of a step, in the log in which its share is largest."""

    run: RunSplit
    part_ns: int
    what: str

    @property
    def share(self) -> float:
        return self.part_ns / self.run.typical_ns


def _small_parts(evidence: Evidence, events: list[CompileEvent], costly: set[_Place]) -> dict[_Place, _Part]:
    found: dict[_Place, _Part] = {}
    for place, part in [*_at_breaks(evidence), *_in_python(evidence, events)]:
        if place not in costly and part.part_ns > 0 and (place not in found or part.share > found[place].share):
            found[place] = part
    return found


def _at_breaks(evidence: Evidence) -> Iterator[tuple[_Place, _Part]]:
    for run in steady_runs(evidence):
        for part in run.parts:
            if part.kind == "break" and part.source:
                place = part.source.file, part.source.line
                yield place, _Part(run, part.duration_ns, "Host work at this break takes")


def _in_python(evidence: Evidence, events: list[CompileEvent]) -> Iterator[tuple[_Place, _Part]]:
    what = "The time between calls of compiled graphs, in which Python runs the function, is"
    for run, cost in gaps_with_fallbacks(evidence.trace) if any(one.status == "fallback" for one in events) else ():
        for event in events:
            if event.log == run.log and event.compile_id in cost.fallbacks and event.status == "fallback":
                yield (event.file, event.line), _Part(run, cost.part_ns, what)


def _cause(event: CompileEvent) -> tuple[str, str | None, int | None]:
    source = event.source
    return event.cause, source.file if source else None, source.line if source else None


def _finding(
    group: list[CompileEvent],
    all_held: list[HeldBuffer] | None,
    plain: dict[int, PlainSteps | None],
    part: _Part | None,
) -> Timed:
    first = group[0]
    compiles = dict.fromkeys((event.log, event.compile_id) for event in group)
    by_log = Counter(log for log, _ in compiles)
    in_each = times(max(by_log.values())) + in_logs(len(by_log))
    of_log = {} if len(by_log) == 1 else {"rank": None, "log": None}
    held = [one for one in all_held or () if (one.log, one.compile_id) in compiles]
    is_all, steps = first.log in plain, plain.get(first.log)
    steps = steps if steps is not None and steps.steps >= LEAST_STEPS else None
    whole = "; the whole function ran in Python" if first.status == "fallback" else ""
    whole += f"{', and' if whole else ';'} nothing was compiled in this run" if is_all else ""
    return first.time_ns, Finding(
        kind="graph_break",
        severity="warning" if is_all else "info",
        title=f"Graph break in {first.name}{in_each}: {first.cause}{whole}{_holds(held)}",
        rule=rule_of(__doc__),
        evidence={
            "breaks": len(compiles),
            **logs_of(len(by_log)),
            "compile_ids": list(dict.fromkeys(compile_id for _, compile_id in compiles))[:MOST_EXAMPLES],
            "explanation": first.text[:2000],
            "held_bytes": None if all_held is None else _bytes(_made(held)),
            "perhaps_held_bytes": None if all_held is None else _bytes(_came_in(held)),
            "held_buffers": [_held(one) for one in held[:MOST_EXAMPLES]],
            **(facts_of(part.run, part.part_ns) if part else {}),
            **({"share": round(steps.part_ns / steps.step_ns, 4), **steps._asdict()} if steps else {}),
        },
        proof=[*(_proof(one) for one in _made(held)[:_MOST_PROOFS]), *_share(steps), *_part(part)],
        links=[
            ProofLink(f"open compile {first.compile_id}", compile_page(first.log, first.compile_id)),
            *_memory(held),
        ],
        **{**place_of(first), **of_log, "page": f"/graph-breaks?break={first.record}"},
    )


def _share(steps: PlainSteps | None) -> list[str]:
    return [f"Work of the program that is not compiled takes {amount(steps.part_ns, steps.step_ns)}."] if steps else []


def _is_usual(event: CompileEvent, finding: Finding, at_break: Sequence[CompileEvent]) -> bool:
    """Return whether a break is only that before the step of an optimizer, and nothing is recompiled or held there."""
    is_more = finding.severity != "info" or finding.evidence["held_buffers"]
    is_called = event.cause == _BREAK_CALLED and _STEP_CALLED.search(event.code or "") is not None
    is_before_step = is_called or _OPTIMIZER_STEP.search(event.text) is not None
    return is_before_step and not is_more and all(one.kind != "recompile" for one in at_break)


def _of_torch(event: CompileEvent) -> list[str]:
    """Return that a break is in PyTorch's own code, if the program's line only calls the function that breaks."""
    is_called = event.caller is not None and event.caller == (event.file, event.line)
    return [_OF_TORCH] if is_called and is_of_torch(event.frame_file or "") else []


def _part(part: _Part | None) -> list[str]:
    return [f"{part.what} {amount(part.part_ns, part.run.typical_ns)}."] if part else []


def _holds(held: list[HeldBuffer]) -> str:
    made = _made(held)
    if not made:
        return ""
    verb = "stay" if len(made) > 1 else "stays"
    text = f"; {_names(made)} ({format_bytes(_bytes(made))}) {verb} alive across the break"
    least = min(one.storage_bytes for one in made)
    others = [one for one in _came_in(held) if one.storage_bytes >= least]
    if not others:
        return text
    verb = "do" if len(others) > 1 else "does"
    size = format_bytes(_bytes(others))
    return f"{text}, and so {verb} {_names(others)} ({size}), made after the break or by the caller"


def _proof(one: HeldBuffer) -> str:
    """Return how long a buffer was held although nothing used it any more."""
    launches = plural(one.launches_after, "launch")
    made = f", made at {basename(one.source.file)}:{one.source.line}," if one.source else ""
    return (
        f"{one.buffer}{made} was last used by {one.last_kernel}; {launches} of graph {one.into_graph} ran "
        f"while its {format_bytes(one.storage_bytes)} were still held"
    )


def _memory(held: list[HeldBuffer]) -> list[ProofLink]:
    """Return the link to the memory of the graph that ran while buffers were held."""
    graphs = list(dict.fromkeys(one.into_graph for one in _made(held)))
    return [ProofLink(f"open the memory of graph {graph}", f"/graphs/{graph}/memory") for graph in graphs[:1]]


def _made(held: list[HeldBuffer]) -> list[HeldBuffer]:
    return [one for one in held if one.made_by == "compiled region"]


def _came_in(held: list[HeldBuffer]) -> list[HeldBuffer]:
    return [one for one in held if one.made_by != "compiled region"]


def _bytes(held: list[HeldBuffer]) -> int:
    return sum(one.storage_bytes for one in held)


def _names(held: list[HeldBuffer]) -> str:
    return ", ".join(one.buffer for one in held[:3]) + (", …" if len(held) > 3 else "")


def _held(one: HeldBuffer) -> dict[str, Any]:
    return {
        **attributes(one, "buffer", "held_as", "storage_bytes", "made_by"),
        "made_by_graph": one.graph,
        "held_in_graph": one.into_graph,
        **attributes(one, "last_kernel", "launches_after"),
        "line": f"{one.source.file}:{one.source.line}" if one.source else None,
    }
