"""Kernels that compute nothing and only copy a tensor to another layout (clone, copy or contiguous of a permuted,
transposed, sliced or expanded tensor) take at least 15 % and 1 ms of each typical step. On a GPU their time on the
device counts. Typical steps are those of medium duration in which nothing was compiled; there must be four. The finding
names the kernel that takes most of this time, and is a warning from 30 % on."""

from __future__ import annotations

from stepscope.viewer.findings.evidence import Evidence, Timed, rule_of
from stepscope.viewer.findings.speed.costly_kernels import CostlyKernels, find_costly
from stepscope.viewer.findings.speed.costs import amount, severity_of, steady_runs
from stepscope.viewer.overview.rows import Finding
from stepscope.viewer.speed.queries.launch_costs import layout_copies

SUMMARY = "Copies to another layout take much of each step"


def find(evidence: Evidence) -> list[Timed]:
    """Return one finding for all logs in which the same kernel copies most."""
    return find_costly(evidence, steady_runs(evidence), layout_copies, _finding)


def _finding(found: CostlyKernels) -> Finding:
    spent, whole = found.part_ns, found.run.typical_ns
    return Finding(
        kind="contiguous_copies",
        severity=severity_of(spent / whole),
        title=f"Copying tensors to another layout takes {amount(spent, whole)}, in {found.named}",
        rule=rule_of(__doc__),
        **found.fields(),
    )
