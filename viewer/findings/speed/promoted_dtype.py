"""Compiled code computes matrix products in float32, although their operands come from tensors of bfloat16 or float16:
an operation before them combines such a tensor with one of float32, so that PyTorch promotes the result. A table of
sines and cosines that stays in float32 is a usual cause. Such products take more time and memory. The graphs of Dynamo
show the dtypes; results that are converted back before the product do not count, and neither do graphs under autocast.
The finding is information, because more precision may be meant. There is one finding per line that combines the
dtypes."""

from __future__ import annotations

from stepscope.viewer.findings.evidence import Evidence, Timed, attributes, grouped, names_text, rule_of
from stepscope.viewer.findings.values.operations import place
from stepscope.viewer.graphs.queries.promoted_products import PromotedProduct, promoted_products
from stepscope.viewer.overview.rows import Finding

SUMMARY = "Matrix products compute in float32 because dtypes are combined before them"
TITLE_IS_MEASURED = True


def find(evidence: Evidence) -> list[Timed]:
    """Return one finding per line of each log that combines dtypes."""
    found = [*promoted_products(evidence.trace)]
    return [_finding(evidence, same) for same in grouped(found, lambda one: (one.log, one.source or one.graph))]


def _finding(evidence: Evidence, same: list[PromotedProduct]) -> Timed:
    first = same[0]
    products = dict.fromkeys(f"{one.product}{place(one.product_source)}" for one in same)
    names = dict.fromkeys(one.name for one in same if one.name is not None)
    what = names_text([*names]) if names else "one operand"
    verb = "are" if len(names) > 1 else "is"
    return first.start_ns, Finding(
        kind="promoted_dtype",
        severity="info",
        title=f"{names_text([*products])} {'compute' if len(products) > 1 else 'computes'} in float32, because {what}"
        f" {verb} float32 and {'meet' if len(names) > 1 else 'meets'} {first.low}{place(first.source)}",
        proof=[
            f"The result of an operation on {first.low} and float32 is float32. Convert the float32 tensor to"
            f" {first.low} before it, or the result after it, if the products need no more precision."
        ],
        rule=rule_of(__doc__),
        evidence={"products": [*products], "names": [*names], "low": first.low},
        page=f"/graphs/{first.graph}",
        rank=evidence.rank_of(first.log),
        **attributes(first, "step", "graph", "log", "source"),
    )
