"""An uncaught exception ended a recorded program, and it came neither from generated code nor from a device.
KeyboardInterrupt and SystemExit do not count. The line is the innermost one that is of no installed package. If the
process lost the connection to another rank, the finding says which ranks had ended normally after fewer steps. An
exception by which a compile failed is a finding of the kind compile_failure instead."""

from __future__ import annotations

from collections.abc import Sequence

from stepscope.viewer.crash.queries.raised_calls import raised_calls
from stepscope.viewer.findings.compiles.compile_fates import ended_by_a_compile
from stepscope.viewer.findings.crash.crash import page_of, proof_lines
from stepscope.viewer.findings.crash.deaths import Death, cpp_facts, deaths, ended_before, same
from stepscope.viewer.findings.crash.raised_call import ended
from stepscope.viewer.findings.evidence import Evidence, Timed, grouped, rule_of
from stepscope.viewer.graphs.rows import SourceLine
from stepscope.viewer.overview.rows import Finding
from stepscope.viewer.text.formats import plural
from stepscope.viewer.text.source_links import is_of_program

SUMMARY = "An uncaught exception ended the program"

_CAUSES = {
    "has been modified by an inplace operation": (
        "Between the forward pass and this backward pass, a tensor that the backward pass needs was changed in place:"
        " by an optimizer's step between the two, or by an operation such as += or relu_."
    ),
    "Trying to backward through the graph a second time": (
        "Usual causes are a state that is carried over to the next step without detach(), and two losses that share a"
        " forward pass and are not summed before backward()."
    ),
}
"""Usual causes of exceptions whose text does not tell them."""


def find(evidence: Evidence) -> list[Timed]:
    """Return one finding per process, and one for all runs of --crash with the same cause."""
    raised = {row.log for row in raised_calls(evidence.trace) if ended(evidence.trace, row)}
    told = raised | ended_by_a_compile(evidence)
    died = [death for death in deaths(evidence.trace) if death.kind == "exception" and death.run.log not in told]
    return [(group[0].at.time_unix_ns or 0, _finding(evidence, group)) for group in grouped(died, same)]


def _finding(evidence: Evidence, group: Sequence[Death]) -> Finding:
    death = group[0]
    error, at = death.error, death.at
    assert error is not None
    facts = cpp_facts(group)
    left = ended_before(evidence.trace, death)
    where = f"after step {at.step}" if at.step is not None else "before any recorded launch"
    return Finding(
        kind="exception",
        severity="warning",
        title=f"The program ended {where} with {error.title}",
        rule=rule_of(__doc__),
        evidence={
            "pid": death.run.pid,
            "exception": error.title,
            "last_step": at.step,
            "launches": at.launches,
            "exit_code": death.end.exit_code if death.end else None,
            "ended_before": [{"rank": rank, "last_step": step} for rank, step in left],
            **facts,
        },
        proof=[
            *_left_proof(left),
            *(cause for said, cause in _CAUSES.items() if said in error.text),
            *proof_lines(facts),
        ],
        page=page_of(death.run.log, at.step, None),
        rank=death.run.rank,
        step=at.step,
        log=death.run.log,
        source=_innermost(error.frames),
    )


def _left_proof(left: Sequence[tuple[int, int]]) -> list[str]:
    if not left:
        return []
    (rank, step), *others = left
    more = f"; {plural(len(others), 'other rank')} had ended, too" if others else ""
    return [
        f"Rank {rank} had already ended, without an uncaught exception, after step {step}{more}. Ranks that run"
        " different numbers of steps, as with shards of unequal size, wait for each other in vain."
    ]


def _innermost(frames: Sequence[SourceLine]) -> SourceLine | None:
    """Return the last frame of the program, or if there is none, that of a package."""
    return next((one for one in reversed(frames) if is_of_program(one.file)), frames[-1] if frames else None)
