"""Matrix products of float32 on CUDA devices of compute capability 8.0 or more take at least 15 % and 1 ms of each
typical step on the device, by the launches that were measured, and were compiled while
`torch.get_float32_matmul_precision()` was ``highest``, so that they do not use TensorFloat-32. Typical steps are those
of medium duration in which nothing was compiled; there must be four. The finding is information, because full precision
may be meant; it is a warning from 50 % on."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from stepscope.viewer.findings.evidence import Evidence, Timed, rule_of
from stepscope.viewer.findings.speed.costs import (
    Slowness,
    amount,
    facts_of,
    is_costly,
    one_per_cause,
    steady_runs,
    steps_of_runs,
)
from stepscope.viewer.overview.rows import Finding
from stepscope.viewer.speed.queries.launch_costs import SiteCost, full_precision_products
from stepscope.viewer.speed.rows import RunSplit
from stepscope.viewer.text.formats import plural

SUMMARY = "Matrix products in full float32 take much of each step"
_LEAST_CAPABILITY, HALF = 8.0, 0.5


def find(evidence: Evidence) -> list[Timed]:
    """Return one finding for all logs in which the same product takes most."""
    return one_per_cause(evidence, _slow(evidence))


def _slow(evidence: Evidence) -> Iterator[Slowness]:
    runs = [run for run in steady_runs(evidence) if _has_tensor_cores(evidence, run)]
    steps = steps_of_runs(evidence, runs)
    found = full_precision_products(evidence.trace, steps)
    for run in runs:
        products = found.get(run.log, [])
        spent = round(sum(product.duration_ns for product in products) / len(steps[run.log]))
        if products and is_costly(spent, run.typical_ns):
            cause = products[0].kernel, products[0].source
            yield Slowness(cause, run, spent, partial(_finding, run, steps[run.log], products, spent))


def _has_tensor_cores(evidence: Evidence, run: RunSplit) -> bool:
    """Return whether every GPU of the run can compute in TensorFloat-32."""
    machine = next((one.machine for one in evidence.runs if one.log == run.log), None)
    capabilities = machine.gpu_capabilities if machine is not None else []
    return bool(capabilities) and all(_number(one) >= _LEAST_CAPABILITY for one in capabilities)


def _number(capability: str) -> float:
    try:
        return float(capability)
    except ValueError:
        return 0.0


def _finding(run: RunSplit, steps: list[int], products: list[SiteCost], spent: int) -> Finding:
    first = products[0]
    others = f" and {plural(len(products) - 1, 'other kernel')}" if len(products) > 1 else ""
    return Finding(
        kind="full_precision_matmul",
        severity="warning" if spent >= HALF * run.typical_ns else "info",
        title=f"Matrix products in full float32 take {amount(spent, run.typical_ns)}, in {first.kernel}{others}",
        rule=rule_of(__doc__),
        evidence={
            **facts_of(run, spent),
            "kernels": [
                {
                    "kernel": product.kernel,
                    "part_ns": round(product.duration_ns / len(steps)),
                    "launches": product.launches,
                }
                for product in products
            ],
        },
        proof=['torch.set_float32_matmul_precision("high") before the compile uses TensorFloat-32.'],
        page=f"/launches/{first.launch}",
        rank=run.rank,
        log=run.log,
        graph=first.graph,
        launch=first.launch,
        kernel=first.kernel,
        source=first.source,
    )
