"""Lists the proofs that a text needs at each position of a report. Without a rule, it becomes a placeholder."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from stepscope.tracer.schema.machine import Machine
from stepscope.tracer.schema.statistics import NUMBERS
from stepscope.viewer.redaction import own_words, proofs
from stepscope.viewer.redaction.proofs import Proof, words


@dataclass(frozen=True)
class Rule:
    """A rule for texts: without any of `proofs`, a text becomes ``noun_1``, unless its kind is kept."""

    noun: str
    proofs: tuple[Proof, ...] = ()
    kind: str = "names"
    """Its kind in `kinds.KINDS`."""


def _own(text: str) -> bool:
    return text in own_words.texts()


def _rules(rule: Rule, names: str) -> dict[str, Rule]:
    return dict.fromkeys(names.split(), rule)


TEXT = Rule("text", kind="texts")
FILE = Rule("file", kind="paths")
FUNCTION = Rule("function")
KERNEL = Rule("kernel", (proofs.kernel,))
NAME = Rule("name", (proofs.name,))
OWN = Rule("text", (_own,), "texts")
SENTENCE = Rule("sentence", (_own,), "texts")
GUARD = Rule("guard", kind="constants")
VERSION = Rule("version", (proofs.version,), "environment")
_MACHINE = Rule("machine", (proofs.version, proofs.platform), "environment")
COMPILE_ID = Rule("compile", (proofs.compile_id,))

RULES: Mapping[str, Rule] = {
    **_rules(FILE, "file path log"),
    **_rules(FUNCTION, "frame"),
    **_rules(KERNEL, "kernel kernels actual_kernel expected_kernel measured_kernel last_kernel written_by read_by"),
    **_rules(NAME, "buffer argument of outputs storage names other_names name program program_name"),
    **_rules(Rule("operator", (proofs.operator,)), "aten operator source_nodes"),
    "fx_nodes": Rule("node", (proofs.operator,)),
    **_rules(Rule("name", (proofs.parameter,)), "parameter"),
    **_rules(
        Rule("node", (proofs.snode,)),
        "snode snodes actual_snode expected_snode measured_snode estimated_snode members reason_snodes at "
        "candidate group estimated_peak_snode measured_peak_snode",
    ),
    **_rules(Rule("type", (proofs.dtype,)), "dtype"),
    **_rules(Rule("device", (proofs.device,), "environment"), "device devices"),
    **_rules(COMPILE_ID, "compile_id compile_ids"),
    **_rules(Rule("graph", (proofs.aot_id,)), "aot_id"),
    **_rules(Rule("graph", (proofs.graph_label,)), "graph_label label against_name"),
    **_rules(Rule("function", (proofs.wrapper_function,)), "function subgraph subgraphs"),
    **_rules(VERSION, "torch python stepscope triton cuda"),
    **_rules(Rule("text", (proofs.symptom, _own), "texts"), "symptom ended signal device_error"),
    **_rules(
        OWN,
        "severity kind status level role held unseen moment event state by cache encoding expected_by part "
        "phase purpose aspect basis title reason reasons shown_as statistic classes health format writer",
    ),
    **_rules(
        SENTENCE,
        "what why missing notes remark verdict skipped not_recorded left_out as_compiled found_by doubt data_workers",
    ),
    **_rules(GUARD, "recompile_reason recompile_reasons"),
    **_rules(TEXT, "graph_break_reason failure holders pass_name"),
    **_rules(Rule("setting", kind="environment"), "config asked argv environment variables"),
    **_rules(Rule("line", kind="source"), "code code_lines lines stack"),
    **_rules(TEXT, "said details sentences"),
}
"""Rules by the name of a field or key."""

RULES_OF: Mapping[tuple[str, str], Rule] = {
    ("SourceLine", "function"): FUNCTION,
    ("CompileRow", "function"): FUNCTION,
    ("Span", "name"): Rule("span", (proofs.span,)),
    ("RecordRow", "name"): Rule("record", (_own, proofs.record)),
    ("RecordRow", "source"): FILE,
    ("ScalarRow", "expression"): Rule("value", (proofs.scalar,), "constants"),
    ("ScalarRow", "value"): Rule("value", (proofs.scalar,), "constants"),
    ("ScalarRow", "type"): Rule("type", (proofs.scalar_type,)),
    ("ScalarRow", "name"): Rule("name", (proofs.parameter,)),
    ("BufferVerdict", "how"): OWN,
    ("Spread", "name"): OWN,
    ("Spread", "low"): Rule("type", (proofs.dtype, proofs.device)),
    ("Spread", "high"): Rule("type", (proofs.dtype, proofs.device)),
    ("NodeColumns", "kind"): Rule("node", (proofs.snode,)),
    ("NodeMemory", "kind"): Rule("node", (proofs.snode,)),
    ("ProgramName", "kind"): OWN,
    ("Difference", "name"): Rule("name", (proofs.name,)),
    ("ToolErrorRow", "text"): Rule("text", (proofs.tool_error,)),
    ("ToolErrorRow", "where"): Rule("text", (proofs.tool_place,)),
    ("source", "function"): FUNCTION,
    **{
        (owner, name): SENTENCE for owner in ("steps", "SummarySteps") for name in ("found_by", "doubt", "data_workers")
    },
    ("SourceLine", "code"): Rule("line", kind="source"),
    ("Problem", "text"): TEXT,
    **{("Machine", name): _MACHINE for name in Machine.__dataclass_fields__},
    ("Machine", "variables"): Rule("setting", kind="environment"),
}
"""Rules for fields of single classes, which precede `RULES`."""

EMPTIED = (RULES_OF["SourceLine", "code"], RULES_OF["Problem", "text"])
"""Rules of texts that leave nothing behind, not even a placeholder."""

DROPPED: Mapping[str, tuple[object, str]] = {
    **dict.fromkeys(["argv"], ([], "environment")),
    **dict.fromkeys(["config", "environment", "variables"], ({}, "environment")),
    **dict.fromkeys(["code"], (None, "source")),
    **dict.fromkeys(["code_lines", "stack", "lines"], ([], "source")),
    **dict.fromkeys(["said", "details", "sentences"], ([], "texts")),
    **dict.fromkeys(["sha256"], ("", "values")),
    **dict.fromkeys(["elements"], (None, "values")),
    **dict.fromkeys(["wrapper_key", "handle"], (None, "names")),
}
"""Fields without a public part: their replacements, and the kind of what they hold."""

VALUES = frozenset(NUMBERS)
"""Statistics that are numbers read from tensors, unlike counts of classes of elements."""

ELEMENTS = ("compiled", "eager", "float64", "allowed")
"""Fields of a judged buffer that are numbers read from tensors."""

EVIDENCE_NUMBERS = words(
    "step last_step first_step launch of launches launch_in_step sites steps storages storage_bytes "
    "bytes_per_step checks is_final_step measured_peak_bytes estimated_peak_bytes gap_bytes "
    "measured_index estimated_index measured_bytes expected_bytes mismatches swap peak_before_bytes "
    "peak_after_bytes allowed_peak_bytes is_explained peak_snodes snodes compiles pid parent_pid "
    "exit_code last_record_unix_ns launch_returned has_ring in_flight_count thread returned device "
    "stream run times min max mean std zero nan certain leaves_the_graph explains_launches "
    "other_origins largest limit inputs_finite ordinal offset size stride recompiles logs breaks "
    "held_bytes perhaps_held_bytes made_by_graph held_in_graph launches_after refused_compiles "
    "failures left_rank right_rank left_place right_place graphs freed_by_collection calls expected "
    "actual bytes argument in_flight line graph growth_bytes item numel iterations bytes_of_peak "
    "share peak_bytes tensor_bytes written_by_launch_in_step position format_version values_step values_in_call "
    "address_step address_in_call"
)
EVIDENCE_TEXTS: Mapping[str, Callable[[str], bool]] = {
    **dict.fromkeys(["compile_id", "compile_ids"], proofs.compile_id),
    **dict.fromkeys(
        words("origin role held unseen kind why expected_by found_by made_by aspect finite what purpose"), _own
    ),
    "signal": proofs.signal,
    **dict.fromkeys(["symptom", "device_error"], proofs.symptom),
    **dict.fromkeys(["aten", "fx_nodes"], proofs.operator),
    "dtype": proofs.dtype,
    **dict.fromkeys(["expression", "value"], proofs.scalar),
    "type": proofs.scalar_type,
    "reason": _own,
    **dict.fromkeys(["reason_snodes", "measured_snode", "estimated_snode", "candidate", "group"], proofs.snode),
}  # fmt: skip
"""Evidence whose texts are shown unchanged or not at all."""
EVIDENCE_NAMES: Mapping[str, Rule] = {
    **_rules(KERNEL, "kernel measured_kernel last_kernel"),
    **_rules(NAME, "buffer name argument"),
    "parameter": Rule("name", (proofs.parameter,)),
}
EVIDENCE_KINDS: Mapping[str, str] = {
    **dict.fromkeys(words("file files path paths logs log"), "paths"),
    **dict.fromkeys(words("function frame frames module holders allocated_in"), "names"),
    **dict.fromkeys(words("code lines"), "source"),
    **dict.fromkeys(words("reasons guards guard values expressions"), "constants"),
    **dict.fromkeys(words("command environment"), "environment"),
}
"""Kinds of other texts in evidence; those of fields that are not listed are texts."""
EVIDENCE_SENTENCES = frozenset({"in", "out", "is", "was"})
"""Evidence with descriptions of tensors by `findings.values.describe`."""
EVIDENCE_TABLES = words(
    "chain buffers held_buffers crash_runs ran_before last_finished in_flight other_threads arguments "
    "before now written read checked_at scalars"
)
"""Evidence whose parts are redacted one by one."""
