"""A redacted report: nothing that a program, its files or its machine named is in any byte of it."""

from __future__ import annotations

import types
import typing
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from stepscope.viewer.compare.rows import Comparison
from stepscope.viewer.compiles.queries.graph_breaks import GraphBreaks
from stepscope.viewer.compiles.rows import CompileDetail
from stepscope.viewer.findings import KINDS, redaction_of
from stepscope.viewer.findings.crash.launch_deaths import LaunchDeath
from stepscope.viewer.graphs.page import GraphPage
from stepscope.viewer.graphs.rows import SourceLine
from stepscope.viewer.judged.rows import VERDICT_HOW, BufferVerdict, JudgedLaunch
from stepscope.viewer.memory import rows as memory_rows
from stepscope.viewer.memory.report import ReportedMemory
from stepscope.viewer.overview.rows import Finding, ProofLink, StepRow
from stepscope.viewer.problems.page import ProblemsPage
from stepscope.viewer.ranks.page import RankDifferencePage, RanksPage
from stepscope.viewer.redaction import own_words, proofs, rules
from stepscope.viewer.redaction.redactor import Redactor
from stepscope.viewer.report.contents import Contents
from stepscope.viewer.report.ticket import collect
from stepscope.viewer.speed.rows import DeviceTime, StepSplit
from stepscope.viewer.steps.page import LaunchPage
from stepscope.viewer.steps.queries.finding_launches import Place
from stepscope.viewer.steps.rows import Timeline
from stepscope.viewer.store.open import open_trace
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.text.formats import to_json
from stepscope.viewer.values.report import ReportedValues
from tests.logs import overflow_log, synthetic
from tests.logs.poisoned import poisoned, poisoned_logs
from tests.logs.synthetic import LogBuilder
from tests.logs.unpacking import data_of, everything, whole_report

Opened = Callable[[LogBuilder | bytes], Trace]
SECRET = "Qz7secret"


def secrets() -> Callable[[str], str]:
    """Another secret each time."""
    numbers = count()
    return lambda plain: f"{SECRET}{next(numbers)}"


def made(hint: Any, secret: Callable[[str], str], depth: int = 0) -> Any:
    """A value of that type with a secret in each text of it, also in the keys of mappings."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal or hint in (str, Any):
        return secret("")
    if isinstance(hint, types.UnionType) or origin is typing.Union:
        return made(inner[0] if inner[0] is not type(None) else inner[1], secret, depth)
    if origin is list:
        return [made(inner[0], secret, depth + 1)] if depth < 8 else []
    if origin is tuple:
        return tuple(made(one, secret, depth + 1) for one in inner if one is not Ellipsis)
    if origin is dict:
        return {made(inner[0], secret, depth): made(inner[1], secret, depth + 1)}
    if is_dataclass(hint) and isinstance(hint, type):
        hints = typing.get_type_hints(hint, {**vars(memory_rows), **vars(_module(hint))})
        return hint(**{field.name: made(hints[field.name], secret, depth + 1) for field in fields(hint)})
    return {int: 7, float: 0.5, bool: True}[hint]


def _module(hint: Any) -> types.ModuleType:
    import sys

    return sys.modules[hint.__module__]


SHOWN: dict[str, Any] = {
    "problems": ProblemsPage,
    "steps": list[tuple[StepRow, Timeline]],
    "splits": dict[str, StepSplit],
    "devices": dict[str, list[DeviceTime]],
    "places": dict[int, Place],
    "panels": list[list[LaunchPage | None]],
    "calls": list[tuple[int, list[int]]],
    "deaths": dict[int, LaunchDeath],
    "graphs": list[GraphPage],
    "compiles": list[CompileDetail],
    "graph_breaks": GraphBreaks,
    "values": ReportedValues,
    "memory": ReportedMemory,
    "live": dict[str, memory_rows.LiveCurve],
    "ranks": RanksPage,
    "differences": list[RankDifferencePage],
    "verdicts": dict[int, JudgedLaunch],
    "comparison": Comparison,
}
"""The types of all parts that a report may show."""


@pytest.mark.slow
def test_every_part_of_a_report_is_looked_at(tmp_path: Path) -> None:
    for number, log in enumerate(poisoned_logs().values()):
        (tmp_path / f"{number}.log").write_bytes(log.data)
    with open_trace(tmp_path) as trace:
        assert collect(trace).shown.keys() == SHOWN.keys()


@pytest.mark.slow
def test_no_text_of_any_row_is_shown_without_a_proof() -> None:
    secret = secrets()
    whole = made(Contents, secret)
    whole.shown = {name: made(hint, secret) for name, hint in SHOWN.items()}
    assert to_json(whole).count(SECRET) > 300
    shown = to_json(Redactor().redact(whole))
    assert SECRET not in shown


def test_a_key_and_a_deep_part_of_the_answer_need_a_proof_too() -> None:
    answer = {
        "findings": [{SECRET: {SECRET: [SECRET]}}],
        SECRET: 1,
        "runs": [{"argv": [SECRET], "path": f"/{SECRET}/x.log"}],
    }
    assert SECRET not in to_json(Redactor().redact(answer))


@pytest.mark.slow
@pytest.mark.parametrize("keep", [False, True])
def test_no_secret_of_any_record_is_in_the_report(keep: bool, tmp_path: Path) -> None:
    secret = secrets()
    for number, log in enumerate(poisoned_logs().values()):
        data = poisoned(log.data, (lambda plain: plain + secret("")) if keep else secret)
        (tmp_path / f"stepscope_trace_{SECRET}_{number}.log").write_bytes(data)
    with open_trace(tmp_path) as trace:
        assert everything(whole_report(trace)).count(SECRET) > 500
        html = whole_report(trace, redact=True, note=f"note {SECRET}")
    assert SECRET not in everything(html)


@pytest.mark.slow
def test_what_a_run_says_of_its_program_and_machine_is_not_in_the_report(opened: Opened) -> None:
    log = synthetic.recorded(
        argv=[f"/home/{SECRET}/train.py", "--token", SECRET],
        config={f"{SECRET}.x": SECRET, "inductor.x": [SECRET]},
        devices=[f"NVIDIA {SECRET}"],
        torch_version=f"2.13.0+{SECRET}",
    )
    html = whole_report(opened(log), redact=True)
    assert SECRET not in everything(html)
    assert "cpp_fused_relu_0" in html
    assert "[4, 8]" in to_json(data_of(html)) or "[4,8]" in to_json(data_of(html))


@pytest.mark.slow
def test_names_that_pytorch_gives_stay(opened: Opened) -> None:
    html = whole_report(opened(overflow_log.recorded()), redact=True)
    assert "cpp_fused_relu_0" in html
    assert "buf0" in html
    assert "float16" in everything(html)


def test_a_placeholder_is_the_same_wherever_it_stands() -> None:
    line, other = SourceLine("/a/b.py", 3, "f", "x = 1"), SourceLine("/a/c.py", 3, "g", "")
    redactor = Redactor()
    assert redactor.redact([line, other, line]) == [
        SourceLine("file_1.py", 3, "function_1", ""),
        SourceLine("file_2.py", 3, "function_2", ""),
        SourceLine("file_1.py", 3, "function_1", ""),
    ]


def test_every_kind_of_finding_has_a_sentence() -> None:
    summaries = {kind: redaction_of(kind)[0] for kind in KINDS}
    assert len(set(summaries.values())) == len(KINDS)
    assert "A finding" not in summaries.values()


def test_a_finding_whose_module_says_nothing_hides_its_title() -> None:
    assert redaction_of("of_tomorrow") == ("A finding", False)


def test_guard_values_are_no_numbers_of_ours() -> None:
    title = "step was recompiled 3 times: self.pin == 4711"
    evidence = {"recompiles": 3, "reasons": ["self.pin == 4711"], "values": [4711], "compile_ids": ["0/1"]}
    shown = Redactor().redact(Finding("recompile", "info", title, "", evidence, "/compile/0_1?log=0"))
    assert "4711" not in to_json(shown)
    assert shown.evidence == {"recompiles": 3, "compile_ids": ["0/1"]}


@pytest.mark.parametrize("how", VERDICT_HOW)
def test_how_the_judge_compared_stays(how: str) -> None:
    shown = Redactor().redact(BufferVerdict("buf0", "customer", "wrong", how, 30.0, None))
    assert (shown.how, shown.node) == (how, "text_1")
    assert Redactor().redact(BufferVerdict("buf0", None, "ok", "customer", None, None)).how == "text_1"


def test_measured_sentences_stay_and_names_in_them_do_not() -> None:
    title = "fp16 overflow in matmul (customer.py:3) becomes NaN in softmax (customer.py:5) in step 2"
    proof = ["matmul wrote customer_weights: NaN in 4 of 8 elements, first at [0, 1]", "customer data"]
    links = [ProofLink("open launch 61", "/steps/2?log=0&launch=61"), ProofLink("open customer", "/customer")]
    evidence = {
        "in": [
            "customer_weights NaN in 4 of 8 elements, first at [0, 1]",
            "buf1 finite, largest magnitude 3 (float32 limit 3.40282e+38)",
        ]
    }
    given = Finding("nonfinite", "critical", title, "", evidence, "/steps/2?log=0&launch=4", proof=proof, links=links)
    shown = Redactor().redact(given)
    assert shown.title == "fp16 overflow in matmul (file_1.py:3) becomes NaN in softmax (file_1.py:5) in step 2"
    assert shown.proof == ["matmul wrote name_1: NaN in 4 of 8 elements, first at [0, 1]"]
    assert shown.links == [ProofLink("open launch 61", "/steps/2?log=0&launch=61"), ProofLink("open", "/")]
    assert shown.evidence["in"] == ["name_1 NaN in 4 of 8 elements, first at [0, 1]", "buf1 finite"]
    kept = Redactor({"values", "names", "paths"}).redact(given)
    assert kept.title == title
    assert kept.evidence == evidence


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        ("/steps/3?log=0&launch=7", "/steps/3?log=0&launch=7"),
        ("/kernels/my_kernel", "/kernels/kernel_1"),
        ("/kernels/triton_poi_fused_add_0", "/kernels/triton_poi_fused_add_0"),
        ("/graphs/1/buffers/customer", "/graphs/1/buffers/name_1"),
        ("/compile/0_0?log=0", "/compile/0_0?log=0"),
        ("/secret/x", "/"),
        ("/records?log=0&text=secret", "/records?log=0"),
        (
            "/magnitudes?log=0&of=outputs&statistic=largest&site=1",
            "/magnitudes?log=0&of=outputs&statistic=largest&site=1",
        ),
        ("/magnitudes?log=0&of=secret&statistic=l2", "/magnitudes?log=0&statistic=l2"),
    ],
)
def test_addresses_hold_no_names(page: str, expected: str) -> None:
    assert Redactor().address(page) == expected


@pytest.mark.parametrize(
    ("proof", "yes", "no"),
    [
        (proofs.kernel, "triton_red_fused_add_native_layer_norm_3", "triton_red_fused_add_customer_3"),
        (proofs.kernel, "cpp_fused__to_copy_addmm_t_0", "cpp_fused_churn_0"),
        (proofs.kernel, "extern_kernels.bmm", "extern_kernels.secret"),
        (proofs.kernel, "torch.ops.aten.sort.stable", "torch.ops.bank.sort.stable"),
        (proofs.name, "reinterpret_tensor(buf0, (4, 8), (8, 1), 0)", "reinterpret_tensor(secret, (4, 8), (8, 1), 0)"),
        (proofs.name, "primals_12", "primals_secret"),
        (proofs.name, "buf3", "'buf3'"),
        (proofs.operator, "mul_tensor_1", "mul_secret_1"),
        (proofs.dtype, "bfloat16", "secret16"),
        (proofs.device, "NVIDIA H100 80GB HBM3", "NVIDIA secret"),
        (proofs.device, "cuda:0", "host:0"),
        (proofs.version, "2.13.0+cu128", "2.13.0+secret"),
        (proofs.compile_id, "!0/4/0", "0/secret"),
        (proofs.graph_label, "0/0 forward · true_graph_0", "0/0 forward · secret_graph_0"),
        (proofs.symptom, "CUDA error: an illegal memory access was encountered", "CUDA error: secret"),
        (proofs.snode, "op1_op2_op3", "op1_secret"),
        (proofs.span, "pass.post_grad_passes.remove_noop_ops", "pass.post_grad_passes.secret"),
    ],
)
def test_proofs(proof: proofs.Proof, yes: str, no: str) -> None:
    assert proof(yes)
    assert not proof(no)


@pytest.mark.parametrize("piece", ["a_", "mm_", "(", "buf0, ", ", ", "1,", " launch ", "NaN in 1 of 2 elements, ", "x"])
def test_a_long_text_is_proven_or_not_in_the_end(piece: str) -> None:
    text = piece * 3000
    for proof in (
        proofs.kernel,
        proofs.name,
        proofs.operator,
        proofs.snode,
        proofs.device,
        proofs.version,
        proofs.number,
    ):
        proof(text)
    proofs.described(text)
    Redactor().sentence(text)


def test_own_sentences_are_found_with_their_holes() -> None:
    assert own_words.fill(("grows by ", None, " per step"), "grows by 4 kB per step") == ["4 kB"]
    assert own_words.fill((None, " of ", None), "3 of 4 of 5") == ["3", "4 of 5"]
    assert own_words.fill(("a", None), "b") is None
    assert rules.SENTENCE is rules.RULES["why"]


def test_the_title_of_a_difference_between_ranks_says_in_what() -> None:
    evidence = {"aspect": "compile_ids", "compile_id": "0/0"}
    found = Finding("rank_divergence", "warning", "Ranks differ in secret", "", evidence, "/ranks", rank=1)
    assert Redactor().redact(found).title == "Ranks differ in compiles: compile 0/0, rank 1"
