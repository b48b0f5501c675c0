"""Compiled code subtracts two tensors of an unsigned dtype, such as uint8, and only afterwards converts the difference
to a signed or floating-point dtype or takes its absolute value. Where the second tensor is larger, the difference has
wrapped around by then: 2 - 3 is 255 in uint8. The graphs of Dynamo show the operations, but not whether the second
tensor is ever larger, so that this is information. There is one finding per line of the program. Differences with a
number, such as 1 - mask, do not count, nor those of a maximum or from a minimum, such as x.max() - x.min()."""

from __future__ import annotations

from stepscope.viewer.findings.evidence import Evidence, Timed, attributes, rule_of
from stepscope.viewer.findings.values.operations import place
from stepscope.viewer.graphs.queries.unsigned_differences import UnsignedDifference, unsigned_differences
from stepscope.viewer.overview.rows import Finding

SUMMARY = "A difference of unsigned integers is converted only after it may have wrapped around"
TITLE_IS_MEASURED = True

_LARGEST = {"uint8": "255", "uint16": "65,535", "uint32": "4,294,967,295", "uint64": "18,446,744,073,709,551,615"}


def find(evidence: Evidence) -> list[Timed]:
    """Return one finding per line of each log."""
    first: dict[object, UnsignedDifference] = {}
    for one in unsigned_differences(evidence.trace):
        first.setdefault((one.log, one.source or one.graph), one)
    return [_finding(evidence, one) for one in first.values()]


def _finding(evidence: Evidence, one: UnsignedDifference) -> Timed:
    then = "its absolute value is taken" if one.converted_to == "abs" else f"it becomes {one.converted_to}"
    return one.start_ns, Finding(
        kind="unsigned_difference",
        severity="info",
        title=f"A difference of two {one.dtype} tensors{place(one.source)} wraps around where it is negative, before"
        f" {then}",
        proof=[
            f"2 - 3 is {_LARGEST[one.dtype]} in {one.dtype}. If the second tensor can be larger, convert both to a"
            " signed or floating-point dtype before the subtraction."
        ],
        rule=rule_of(__doc__),
        evidence=attributes(one, "dtype", "converted_to"),
        page=f"/graphs/{one.graph}",
        rank=evidence.rank_of(one.log),
        **attributes(one, "step", "graph", "log", "source"),
    )
