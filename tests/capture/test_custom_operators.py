"""What is said of custom operators that do what their schemas do not say."""

from __future__ import annotations

from pathlib import Path

import pytest

from stepscope.viewer.overview.queries.overview import overview
from stepscope.viewer.store.open import open_trace
from tests.capture.scripts import Scripts
from tests.capture.test_verdicts import record

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Scripts:
    return Scripts(tmp_path_factory.mktemp("scripts"))


@pytest.mark.parametrize("changes", [True, False])
@pytest.mark.parametrize("reader", ["a launch", "the caller"])
def test_a_custom_operator_that_changes_an_input_unsaid(
    scripts: Scripts, tmp_path: Path, changes: bool, reader: str
) -> None:
    body = f"""
    @torch.library.custom_op("stepscope_test::stats", mutates_args=())
    def stats(value: torch.Tensor) -> torch.Tensor:
        return (value.clamp_(-1, 0.5) if {changes} else value.clamp(-1, 0.5)).sum(0)
    @stats.register_fake
    def _(value):
        return value.new_empty(value.shape[1:])
    @torch.compile
    def model(value):
        product = value @ value if {reader == "a launch"} else value
        total = torch.ops.stepscope_test.stats(product)
        return product * 2 + total if {reader == "a launch"} else total + 1
    with stepscope.trace(FOLDER, level="values", verify_before=ASKED):
        model(VALUE.clone())
    """
    found = record(scripts, tmp_path / "asked", body.replace("ASKED", "True"))
    assert [(finding.kind, finding.severity) for finding in found] == [("changed_without_writer", "critical")] * changes
    title = "The custom operator stepscope_test.stats changed " + ("buf0" if reader == "a launch" else "value (arg0_1)")
    assert all(finding.title.startswith(f"{title} without declaring it") for finding in found)
    folder = tmp_path / "plain"
    assert record(scripts, folder, body.replace("ASKED", "False")) == []
    for name, asks in (("plain", True), ("asked", False)):
        with open_trace(tmp_path / name, index_dir=tmp_path / name / "index") as trace:
            notes = overview(trace).notes
        assert asks is any("stepscope_test.stats" in note and "--verify-before" in note for note in notes)


ALIASES = """
torch.library.define("stepscope_test::rounded", "(Tensor value) -> Tensor")
torch.library.impl("stepscope_test::rounded", "cpu", lambda value: RESULT)
torch.library.register_fake("stepscope_test::rounded", torch.empty_like)
@torch.compile
def model(value):
    for factor in (2.0, 3.0):
        product = value @ value
        rounded = torch.ops.stepscope_test.rounded(product)
        value = rounded @ value * factor
    return value
with stepscope.trace(FOLDER):
    model(VALUE.clone())
"""


@pytest.mark.parametrize(
    ("returned", "kinds"),
    [
        ("value", ["hidden_alias"]),
        ("torch.from_numpy(value.numpy())", ["hidden_alias"]),
        ("torch.from_numpy(value.numpy()[4:].repeat(2, 0))", []),
        ("value.clone()", []),
    ],
)
def test_a_custom_operator_that_returns_the_memory_of_its_input(
    scripts: Scripts, tmp_path: Path, returned: str, kinds: list[str]
) -> None:
    """Two calls are one finding, and so are the buffers that the results keep, also where NumPy shares the memory."""
    found = record(scripts, tmp_path, ALIASES.replace("RESULT", returned))
    assert [finding.kind for finding in found] == kinds
    for finding in found:
        assert finding.title.startswith("stepscope_test.rounded")
        assert finding.severity == "critical"
        assert "The operator does so at 2 launch sites of 1 graph." in finding.proof
        assert finding.evidence["kept_buffers"] > 0


def test_the_line_of_a_custom_operator_is_its_own(scripts: Scripts, tmp_path: Path) -> None:
    """Inductor's own trace is that of the node that reads the result."""
    script = tmp_path / "windows.py"
    script.write_text(
        "import sys, stepscope, torch\n"
        'torch.library.define("stepscope_test::split", "(Tensor value) -> Tensor")\n'
        'torch.library.impl("stepscope_test::split", "cpu", lambda value: value.view(2, 4, 8))\n'
        'torch.library.register_fake("stepscope_test::split", lambda value: value.new_empty(2, 4, 8))\n'
        "@torch.compile\n"
        "def model(value):\n"
        "    parts = torch.ops.stepscope_test.split(value @ value)\n"
        "    scores = torch.softmax(parts @ parts.mT, -1)\n"
        "    return torch.tanh(scores @ parts) + parts\n"
        "with stepscope.trace(sys.argv[1]), torch.no_grad():\n"
        "    model(torch.ones(8, 8))\n"
    )
    command = f"import runpy, sys; sys.argv[0] = {str(script)!r}; runpy.run_path(sys.argv[0], run_name='__main__')"
    (finding,) = record(scripts, tmp_path / "trace", command)
    assert finding.kind == "hidden_alias"
    assert finding.source is not None
    assert finding.source.code.startswith("parts = ")


def test_buffers_that_a_custom_operator_keeps_for_a_while_are_one_finding(scripts: Scripts, tmp_path: Path) -> None:
    body = """
    last = []
    @torch.library.custom_op("stepscope_test::total", mutates_args=())
    def total(value: torch.Tensor) -> torch.Tensor:
        last[:] = [value] if value.shape[0] > 2 else []
        return value.sum(0)
    @total.register_fake
    def _(value):
        return value.new_empty(value.shape[1:])
    @torch.compile
    def model(value):
        sums = [torch.ops.stepscope_test.total(value[:rows] @ value) for rows in (3, 5, 7)]
        return torch.ops.stepscope_test.total(torch.stack(sums)[:2] @ value)
    with stepscope.trace(FOLDER):
        model(VALUE.clone())
    """
    (finding,) = record(scripts, tmp_path, body)
    assert finding.kind == "lifetime_mismatch"
    assert " were freed later than expected" in finding.title
    assert finding.proof[0].startswith("They were expected to be freed after torch.ops.stepscope_test.total.default")
    assert len(finding.evidence["buffers"]) == 3


def test_a_custom_operator_that_changes_two_inputs_is_told_once(scripts: Scripts, tmp_path: Path) -> None:
    body = """
    @torch.library.custom_op("stepscope_test::center", mutates_args=())
    def center(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        return one.sub_(1).sum(0) + other.sub_(1).sum(0)
    @center.register_fake
    def _(one, other):
        return one.new_empty(one.shape[1:])
    @torch.compile
    def model(value):
        one, other = value @ value, value @ value.T
        total = torch.ops.stepscope_test.center(one, other)
        return one * other + total
    with stepscope.trace(FOLDER, level="values", verify_before=True):
        model(VALUE.clone())
    """
    (finding,) = record(scripts, tmp_path / "two", body)
    assert finding.title.startswith("The custom operator stepscope_test.center changed buf0 and buf1 without declaring")
    assert finding.evidence["changed"] == ["buf0", "buf1"]
