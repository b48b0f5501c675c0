"""A compile ended with an error other than the recompile limit. The finding is critical when this error ended the
program, or when the log of a process that died ends with it, without an end record and without a later launch or
compile. Otherwise the program went on if another compile, a launch or the end of the program follows. Then the finding
is a warning if an operator refused its inputs in two or more compiles, because the program has caught exceptions that
eager mode raises, too, or if three or more compiles of the same function failed for the same cause, because each call
compiles in vain; else it is information, because the program caught the error or ran the code without compiling it. It
is a warning as well when the outcome is unknown, because a log that only PyTorch wrote, or a log of a running process,
ends with the error or during a compile. If Inductor failed, the finding names the line of the model that it was
compiling, where a recorder saw it. The lines of the program that called the function are named, too."""

from __future__ import annotations

from stepscope.viewer.compiles.queries.events import CompileEvent
from stepscope.viewer.crash.queries.raised_calls import FailedNodeRow, failed_nodes
from stepscope.viewer.findings.compiles.compile_fates import SEVERITIES, Fate, Fates, failed_compiles
from stepscope.viewer.findings.evidence import (
    Evidence,
    Timed,
    alike_in_logs,
    called_at,
    grouped,
    in_logs,
    logs_of,
    place_of,
    rule_of,
    times,
)
from stepscope.viewer.ingest.torch_trace.kinds import NO_ID
from stepscope.viewer.overview.rows import Finding

SUMMARY = "A compile failed"
REFUSED, IN_VAIN = 2, 3
"""Numbers of failed compiles of a function from which on the finding is a warning at least: if an operator refused the
inputs, and otherwise."""


def find(evidence: Evidence) -> list[Timed]:
    """Return one finding per frame and cause, over all logs in which it is the same."""
    events = failed_compiles(evidence)
    if not events:
        return []
    fates = Fates(evidence)
    groups = grouped(events, lambda event: (event.log, event.frame_id, event.cause))
    by_fate = grouped(groups, lambda group: fates.of(group[-1]))
    nodes = {(node.log, node.compile_id or NO_ID): node for node in reversed(failed_nodes(evidence.trace))}
    return [
        _finding(same[0], fates.of(same[0][-1]), len(same), nodes) for some in by_fate for same in alike_in_logs(some)
    ]


def _finding(group: list[CompileEvent], fate: Fate, logs: int, nodes: dict[tuple[int, str], FailedNodeRow]) -> Timed:
    first = group[0]
    node = nodes.get((first.log, first.compile_id))
    node = node if node is not None and node.text in first.text else None
    is_in_vain = first.status != "unfinished" and len(group) >= (REFUSED if first.is_refused else IN_VAIN)
    proof = [f"Inductor failed while it was compiling {node.target}."] if node else []
    calls = dict.fromkeys(call for event in group if (call := event.call) is not None)
    proof += called_at(calls)
    if first.is_refused and fate == "went on":
        proof.append(
            "The program caught the exception. An operator refused its inputs, as it probably does in eager mode."
        )
    elif is_in_vain and fate == "went on":
        proof.append("Each of these calls compiled in vain and ran, if at all, without compiled code.")
    title = f"Compiling {first.name} failed{times(len(group))}{in_logs(logs)}: {first.cause}"
    title += {"went on": "; the program went on", "died": "; the program ended", "unknown": ""}[fate]
    if first.status == "unfinished":
        title = f"{first.name} was not compiled completely{in_logs(logs)}: {first.cause}"
    return first.time_ns, Finding(
        kind="compile_failure",
        severity="warning" if is_in_vain and fate == "went on" else SEVERITIES[fate],
        title=title,
        rule=rule_of(__doc__),
        evidence={
            "failures": len(group),
            **logs_of(logs),
            "compile_id": first.compile_id,
            "error": first.text[:2000],
            "node": node.node if node else None,
            "operator": node.target if node else None,
        },
        proof=proof,
        **{**place_of(first), **({"source": node.source} if node and node.source else {})},
    )
