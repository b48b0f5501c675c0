"""Compiled graphs beside eager mode: what is wrong is found, what is right is not, and the program notices nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.torch_version import TorchVersion

from stepscope.viewer.findings import all_findings
from stepscope.viewer.overview.rows import Finding
from stepscope.viewer.store.open import open_trace
from stepscope.viewer.values.queries.layer_checks import LayerCheckRow, layer_checks
from tests import python_processes
from tests.capture.conftest import clean_environment

pytestmark = pytest.mark.slow


PROGRAM = "tests.tracer.judge.eager_check_program"
FIXED = ("overlapping", "lost_mutation", "lost_in_dropout", "other_dtype")
"""Programs that torch computes wrongly up to 2.13, and right in 2.15."""
HAS_NUMERICS = hasattr(torch._inductor.config, "numerics")


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """The folder of the traces, and whether each program gave the same with the check."""
    folder = tmp_path_factory.mktemp("checks")
    environment = clean_environment(folder / "cache", TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    done = python_processes.run([sys.executable, "-m", PROGRAM, str(folder)], env=environment, timeout=500)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder, dict(line.split() for line in done.stdout.splitlines())


def read(ran: tuple[Path, dict[str, str]], name: str) -> tuple[list[Finding], list[LayerCheckRow]]:
    assert ran[1][name] == "same"
    with open_trace(ran[0] / name) as trace:
        findings = [one for one in all_findings(trace) if one.kind == "layer_difference"]
        if name in FIXED and not findings and TorchVersion(torch.__version__) >= "2.14":
            pytest.skip("this torch computes the program right")
        return findings, layer_checks(trace)


def differences(rows: list[LayerCheckRow]) -> set[tuple[Any, Any]]:
    return {(one["name"], one["what"]) for row in rows for one in row.differences}


def test_a_kernel_that_overwrites_what_it_reads(ran: tuple[Path, dict[str, str]]) -> None:
    (finding,), rows = read(ran, "overlapping")
    assert finding.severity == "critical"
    assert "differs from eager: input x after the call, 16 of 32 elements" in finding.title
    assert differences(rows) == {("output 0", "values"), ("input x after the call", "values")}
    evidence = finding.evidence
    assert abs(evidence["before"] - evidence["float64"]) < 1e-6 < abs(evidence["after"] - evidence["float64"])
    assert finding.source is not None
    assert finding.source.code == "x.add_(x.flip(0))"


def test_a_lost_mutation(ran: tuple[Path, dict[str, str]]) -> None:
    (finding,), rows = read(ran, "lost_mutation")
    assert finding.severity == "critical"
    assert (finding.evidence["before"], finding.evidence["after"]) == (2, 1)
    assert differences(rows) == {
        ("input x after the call", "values"), ("output 0", "alias"), ("output 0", "identity"),
    }  # fmt: skip


def test_a_wrong_alias(ran: tuple[Path, dict[str, str]]) -> None:
    (finding,), _ = read(ran, "wrong_alias")
    assert finding.severity == "critical"
    assert finding.title.endswith("output 0, it shares memory with input x after the call, and should not")


def test_a_wrong_gradient(ran: tuple[Path, dict[str, str]]) -> None:
    (finding,), rows = read(ran, "wrong_gradient")
    assert [(row.phase, row.verdict) for row in rows] == [("forward", "agrees"), ("backward", "differs")]
    assert "gradient of w, 16 of 16 elements" in finding.title


def test_eager_mode_may_be_the_one_that_is_off(ran: tuple[Path, dict[str, str]]) -> None:
    (finding,), _ = read(ran, "better_than_eager")
    assert finding.severity == "info"
    assert "eager is not finite: this is rounding, not a compiler error" in finding.title


def test_healthy_programs_agree(ran: tuple[Path, dict[str, str]]) -> None:
    findings, rows = read(ran, "healthy")
    assert not findings
    assert {row.verdict for row in rows} == {"agrees"}
    assert {row.phase for row in rows} == {"forward", "backward"}
    assert len(rows) >= 7


def test_tensors_that_a_graph_holds_change_once(ran: tuple[Path, dict[str, str]]) -> None:
    findings, rows = read(ran, "optimizer")
    assert not findings
    assert rows
    assert {row.verdict for row in rows} == {"agrees"}


def test_a_backward_that_draws_again_is_not_compared(ran: tuple[Path, dict[str, str]]) -> None:
    findings, rows = read(ran, "random_backward")
    assert not findings
    assert [(row.phase, row.verdict) for row in rows] == [("forward", "agrees"), ("backward", "not_compared")]
    assert "draws random numbers" in (rows[1].why or "")


def test_an_undeclared_change_of_an_input_is_no_rounding(ran: tuple[Path, dict[str, str]]) -> None:
    (finding,), rows = read(ran, "undeclared")
    assert [row.verdict for row in rows] == ["eager_is_off"]
    assert finding.severity == "warning"
    assert "rounding" not in finding.title
    assert finding.title.endswith(
        "custom operators (stepscope_tests.undeclared) may change inputs that they do not declare"
    )
    assert any("--level values --verify-before" in line for line in finding.proof)


def test_an_operator_that_returns_the_memory_of_its_input_is_the_reason(ran: tuple[Path, dict[str, str]]) -> None:
    (finding,), rows = read(ran, "returned_alias")
    assert [row.verdict for row in rows] == ["eager_is_off"]
    assert finding.severity == "warning"
    assert finding.title.endswith(
        "stepscope_tests.same_memory returns the memory of its input, so that eager code which changes the input"
        " changes the result as well"
    )
    assert not any("--verify-before" in line for line in finding.proof)


def test_gradients_of_saved_tensors_that_changed_are_not_compared(ran: tuple[Path, dict[str, str]]) -> None:
    findings, rows = read(ran, "changed_behind_autograd")
    assert not findings
    assert [(row.phase, row.verdict) for row in rows] == [("forward", "agrees"), ("backward", "not_compared")]
    assert (rows[1].why or "").startswith("1 tensor that the forward pass saved changed before the backward pass; ")
    with open_trace(ran[0] / "changed_behind_autograd") as trace:
        (found,) = (one for one in all_findings(trace) if one.kind == "changed_saved_tensor")
    assert found.severity == "warning"
    assert found.proof[1] == "Record with --level values to find what changed it."


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("random", "draws random numbers"),
        ("subclass", "subclass Other"),
        ("transforms", "applies a transform of torch.func"),
        ("out_of_memory", "not enough memory"),
    ],
)
def test_what_cannot_be_compared_is_said(ran: tuple[Path, dict[str, str]], name: str, why: str) -> None:
    findings, rows = read(ran, name)
    assert not findings
    assert {row.verdict for row in rows} == {"not_compared"}
    assert all(why in (row.why or "") for row in rows)
    with open_trace(ran[0] / name) as trace:
        said = [one.title for one in all_findings(trace) if one.kind == "not_recorded"]
    (title,) = said
    assert why in title
    assert "with eager mode" in title


@pytest.mark.parametrize(
    ("name", "pair", "line", "removed_by"),
    [
        ("overlapping", ["post_grad", "compiled"], "x.add_(x.flip(0))", ["max_fusion_size=1"]),
        ("wrong_kernel", ["post_grad", "compiled"], "doubled.sin()", ["max_fusion_size=1"]),
        ("lost_mutation", ["dynamo", "aot"], "y += y", []),
        ("lost_in_dropout", ["dynamo", "aot"], "y.mul_(3)", []),
        ("lost_between_windows", ["dynamo", "aot"], "x.unfold(0, 3, 3).mul_(2)", []),
        ("other_dtype", ["joint", "post_grad"], "cumsum", []),
        ("wrong_alias", ["joint", "post_grad"], "slice_scatter", []),
        ("hidden_overflow", ["aot", "joint"], "", ["use_joint_graph_passes=False"]),
        ("returned_input", ["aot", "joint"], "", ["use_joint_graph_passes=False"]),
        (
            "better_than_eager",
            ["post_grad", "compiled"],
            "x * 1000 / 1000",
            ["emulate_precision_casts=True", *["numerics=strict"] * HAS_NUMERICS],
        ),
    ],
)
def test_the_layer_is_named(
    ran: tuple[Path, dict[str, str]], name: str, pair: list[str], line: str, removed_by: list[str]
) -> None:
    (finding,), rows = read(ran, name)
    assert finding.evidence["appears_between"] == pair
    assert finding.source is not None
    assert line in finding.source.code
    gone = [
        text.removesuffix(": it disappears") for text in finding.evidence["settings"] if text.endswith("it disappears")
    ]
    assert gone == removed_by
    assert any("The difference appears between" in line for line in finding.proof)
    assert bool(rows[0].nodes) == (pair[1] != "compiled")


def test_the_line_of_the_changed_nodes_is_named(ran: tuple[Path, dict[str, str]]) -> None:
    """The result is computed further down."""
    (finding,), _ = read(ran, "far_above")
    assert finding.source is not None
    assert finding.source.code == "distance = product - y"
    assert any("come from eager_check_program.py:" in line for line in finding.proof)
    changed = [line for line in finding.evidence["changed_nodes"] if line[:2] in ("-%", "+%")]
    assert not any("num_users" in line for line in changed)


def test_a_graph_with_transforms_is_compared_from_autograd_on(ran: tuple[Path, dict[str, str]]) -> None:
    """Dynamo's graph cannot run twice, and that of AOTAutograd takes its place."""
    (finding,), rows = read(ran, "transformed")
    assert [(row.before, row.verdict) for row in rows] == [("aot", "differs")]
    assert "differs from the graph of AOTAutograd: output 0, 12 of 12 elements" in finding.title
    assert finding.evidence["appears_between"] == ["joint", "post_grad"]
    assert finding.source is not None
    assert finding.source.code
    assert "/torch/" not in finding.source.file


def test_healthy_transforms_agree(ran: tuple[Path, dict[str, str]]) -> None:
    findings, rows = read(ran, "healthy_transforms")
    assert not findings
    assert {(row.before, row.verdict) for row in rows} == {("aot", "agrees")}


def test_a_graph_that_eager_mode_refuses(ran: tuple[Path, dict[str, str]]) -> None:
    """Its layer cannot be compared, so what its passes changed is told with the step that goes past it."""
    (finding,), _ = read(ran, "shifted")
    assert finding.evidence["appears_between"] == ["joint", "compiled"]
    assert any("refer to a single memory location" in step for step in finding.evidence["layer_steps"])
    assert any("copy_" in line for line in finding.evidence["changed_nodes"] if line.startswith("+"))
    assert any("refer to a single memory location" in line for line in finding.proof)


@pytest.mark.parametrize("name", [*(f"post_grad_{n}" for n in range(6)), *(f"joint_{n}" for n in range(4))])
def test_a_wrong_pass_is_named(ran: tuple[Path, dict[str, str]], name: str) -> None:
    """The joint graph of training has other inputs, so its passes belong to the step from Dynamo's graph."""
    findings, _ = read(ran, name)
    assert findings
    after = name.rpartition("_")[0]
    assert {finding.evidence["appears_between"][1] for finding in findings} == {after}
    changed = [line for finding in findings for line in finding.evidence["changed_nodes"]]
    assert changed


@pytest.mark.parametrize(
    ("name", "pair"),
    [
        ("judged_lost_windows", ["dynamo", "aot"]),
        ("judged_backward", ["joint", "post_grad"]),
        ("judged_same_argument", ["joint", "post_grad"]),
    ],
)
def test_the_layer_is_named_by_itself_where_no_kernel_is_wrong(
    ran: tuple[Path, dict[str, str]], name: str, pair: list[str]
) -> None:
    (finding,), _ = read(ran, name)
    assert finding.evidence["appears_between"] == pair
    assert finding.evidence["changed_nodes"]
    with open_trace(ran[0] / name) as trace:
        assert not [one for one in all_findings(trace) if one.kind == "wrong_kernel"]


def test_no_layer_is_looked_for_where_a_kernel_is_wrong(ran: tuple[Path, dict[str, str]]) -> None:
    (finding,), rows = read(ran, "judged_kernel")
    assert finding.evidence["appears_between"] is None
    assert not any(row.layers for row in rows)


def test_the_option_needs_a_number(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "stepscope", "run", "-o", str(tmp_path), "--check-eager=three", "train.py"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "--check-eager is 'three'; it must be an integer" in done.stderr
    assert "Traceback" not in done.stderr
