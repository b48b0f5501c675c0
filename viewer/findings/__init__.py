"""Finds what is wrong in a trace. Each kind of finding has a module, whose docstring is the rule that users see."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from stepscope.viewer.errors import StepscopeError, reason_of

if TYPE_CHECKING:
    from stepscope.viewer.findings.evidence import Evidence, Timed
    from stepscope.viewer.overview.rows import Finding, NotRecorded
    from stepscope.viewer.store.trace import Trace

_OF_RECORDERS = (
    "judged.wrong_kernel", "judged.clobbered_input", "judged.eager_rounding", "judged.layer_difference",
    "values.nonfinite", "values.uninitialised_read", "values.storage_overlap", "values.overlapping_inputs",
    "values.changed_without_writer",
    "values.red_zone_write",
    "values.nondeterministic", "values.changed_saved_tensor", "values.other_recomputation",
    "values.repeated_update", "values.hidden_alias",
    "values.unwritten_result", "values.overwritten_results", "values.left_out_operator", "values.misread_dtype",
    "values.exploding_values", "values.parameter_jump", "values.lost_update", "values.dead_activation",
    "values.kept_gradients", "values.missing_gradients", "values.zero_gradients",
    "values.untrained_parameters", "values.shared_parameters",
    "values.unmatched_keys", "values.uncopied_state",
    "values.cleared_gradients", "values.misplaced_clipping", "values.changed_hooks", "values.piled_hooks",
    "values.nonfinite_parameters", "values.vanished_rate", "values.rounded_eps", "values.left_in_eval",
    "values.loss_input", "values.ignored_gradient", "values.unsigned_difference", "values.active_dropout",
    "values.repeated_seed", "values.repeated_batch", "values.exported_training",
    "values.changed_outside", "values.frozen_weight",
    "memory.lifetime_mismatch", "memory.recompute_mismatch", "memory.estimate_gap", "memory.growth",
    "memory.recomputed_together", "memory.summed_losses", "memory.kept_tensors", "memory.reference_cycle",
    "crash.crash", "crash.exception", "crash.raised_call", "logs.not_recorded",
    "speed.recompiles_each_step", "speed.break_in_hot_loop", "speed.synchronizing_call", "speed.host_bound",
    "speed.data_waits", "speed.restarted_workers", "speed.slow_optimizer", "speed.uncompiled_work",
    "speed.frequent_evaluation", "speed.small_calls",
    "speed.growing_sequence", "speed.contiguous_copies", "speed.full_precision_matmul", "speed.promoted_dtype",
    "speed.slow_choice",
    "speed.slow_shape", "speed.slower_kernels", "speed.slow_rank", "ranks.unaveraged_gradients",
)  # fmt: skip
"""Modules that need a log written by a recorder."""
_OF_COMPILES = (
    "compiles.recompile_limit", "compiles.recompile", "compiles.graph_break", "compiles.compile_failure",
    "compiles.cache_bypass",
)  # fmt: skip
"""Modules that need compile events of the same name."""
_OF_EXPORTS = ("compiles.draft_export",)
_OF_RANKS = (
    "ranks.rank_divergence", "ranks.replica_difference", "ranks.skipped_step", "ranks.equal_batches",
)  # fmt: skip
_OF_LOGS = ("logs.unread_log",)
MODULES = (*_OF_RECORDERS, *_OF_COMPILES, *_OF_EXPORTS, *_OF_RANKS, *_OF_LOGS)
"""Registry with the module of each kind. A module that cannot find anything in a trace is not imported, to save
time."""
_MODULE_OF = {module.rpartition(".")[2]: module for module in MODULES}
KINDS = tuple(_MODULE_OF)
_ORDER = ("critical", "warning", "info")
_ALSO = {
    "nonfinite_parameters": "nonfinite",
    "recompile_limit": "recompile",
    "recompiles_each_step": "recompile",
    "break_in_hot_loop": "graph_break",
    "synchronizing_call": "graph_break",
}
_LAST = 2**63
"""Time of findings without one."""


def all_findings(trace: Trace) -> list[Finding]:
    """Return all findings by severity (critical, warning, info) and then by time. A kind that failed is a warning."""
    return [*trace.once(_kept_or_found)]


def gaps(trace: Trace) -> list[NotRecorded]:
    """Return the kinds whose search failed, and why."""
    from stepscope.viewer.overview.rows import NotRecorded

    found = [finding.evidence for finding in all_findings(trace) if is_gap(finding)]
    return [NotRecorded(f"findings: {gap['kind']}", gap["why"], None, None, 1) for gap in found]


def kinds_of(finding: Finding) -> set[str]:
    """Return the kinds under which `stepscope check` counts a finding: a frame at the recompile limit was recompiled
    before, findings about the cost of an event replace those about the event, parameters with NaN and growing values
    come from NaN in a launch or end in it, and a search that failed may have missed findings of its kind."""
    if finding.kind == "exploding_values" and finding.evidence.get("ends"):
        return {finding.kind, "nonfinite"}
    if finding.kind in _ALSO:
        return {finding.kind, _ALSO[finding.kind]}
    return {finding.kind, finding.evidence["kind"]} if is_gap(finding) else {finding.kind}


def is_gap(finding: Finding) -> bool:
    """Return whether the finding says that the search for a kind failed."""
    return finding.kind == "not_recorded" and "kind" in finding.evidence


def _kept_or_found(trace: Trace) -> list[Finding]:
    from stepscope.viewer.findings.kept_findings import keep, kept

    found = kept(trace)
    if found is None:
        found = _find_all(trace)
        if not any(map(is_gap, found)):  # what failed once may not fail again
            keep(trace, found)
    return found


def _find_all(trace: Trace) -> list[Finding]:
    from stepscope.viewer.findings.evidence import Evidence  # takes time to import; not needed where findings are kept

    evidence = Evidence(trace)
    timed: list[Timed] = []
    for module in MODULES:
        try:
            if _is_possible(module, evidence):
                timed += import_module(f"{__name__}.{module}").find(evidence)
        except StepscopeError:
            raise
        except Exception as error:
            timed.append((_LAST, _gap(module.rpartition(".")[2], error)))
    timed.sort(key=lambda pair: (_ORDER.index(pair[1].severity), pair[0]))
    return [finding for _, finding in timed]


def rules() -> frozenset[str]:
    """Return the rules of all kinds as their findings quote them."""
    return frozenset(map(rule_of_kind, KINDS))


def rule_of_kind(kind: str) -> str:
    """Return the rule of a kind of finding as its findings quote it."""
    from stepscope.viewer.findings.evidence import rule_of

    return rule_of(import_module(f"{__name__}.{_MODULE_OF[kind]}").__doc__)


def redaction_of(kind: str) -> tuple[str, bool]:
    """Return the replacement for the title of a finding in a redacted report, and whether the title may stay with its
    names replaced because it only has measurements. Modules define these as SUMMARY and TITLE_IS_MEASURED."""
    module = _MODULE_OF.get(kind)
    found = import_module(f"{__name__}.{module}") if module else None
    return getattr(found, "SUMMARY", "A finding"), getattr(found, "TITLE_IS_MEASURED", False)


def _is_possible(module: str, evidence: Evidence) -> bool:
    if module in _OF_RECORDERS:
        return evidence.is_recorded
    if module in _OF_COMPILES:
        return bool(evidence.compile_events(module.rpartition(".")[2]))
    if module in _OF_LOGS:
        return bool(evidence.unread_logs)
    return evidence.has_exports if module in _OF_EXPORTS else len(evidence.runs) > 1


def _gap(kind: str, error: Exception) -> Finding:
    from stepscope.viewer.overview.rows import Finding

    why = reason_of(error)
    return Finding(
        kind="not_recorded",
        severity="warning",
        title=f"Findings of the kind {kind} could not be determined ({why})",
        rule="The search for this kind of finding failed on this trace. All other kinds were searched for.",
        evidence={"kind": kind, "why": why},
        page="/problems#not-recorded",
    )
