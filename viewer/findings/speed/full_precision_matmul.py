"""Matrix products of float32 on CUDA devices of compute capability 8.0 or more take at least 15 % and 1 ms of each
typical step on the device, by the launches that were measured, and were compiled while
`torch.get_float32_matmul_precision()` was ``highest``, so that they do not use TensorFloat-32. Typical steps are those
of medium duration in which nothing was compiled; there must be four. The finding is information, because full precision
may be meant; it is a warning from 50 % on."""

from __future__ import annotations

from stepscope.viewer.findings.evidence import Evidence, Timed, rule_of
from stepscope.viewer.findings.speed.costly_kernels import CostlyKernels, find_costly
from stepscope.viewer.findings.speed.costs import amount, steady_runs
from stepscope.viewer.overview.rows import Finding
from stepscope.viewer.speed.queries.launch_costs import full_precision_products
from stepscope.viewer.speed.rows import RunSplit

SUMMARY = "Matrix products in full float32 take much of each step"
_LEAST_CAPABILITY, HALF = 8.0, 0.5


def find(evidence: Evidence) -> list[Timed]:
    """Return one finding for all logs in which the same product takes most."""
    runs = [run for run in steady_runs(evidence) if _has_tensor_cores(evidence, run)]
    return find_costly(evidence, runs, full_precision_products, _finding)


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


def _finding(found: CostlyKernels) -> Finding:
    spent, whole = found.part_ns, found.run.typical_ns
    return Finding(
        kind="full_precision_matmul",
        severity="warning" if spent >= HALF * whole else "info",
        title=f"Matrix products in full float32 take {amount(spent, whole)}, in {found.named}",
        rule=rule_of(__doc__),
        proof=['torch.set_float32_matmul_precision("high") before the compile uses TensorFloat-32.'],
        **found.fields(),
    )
