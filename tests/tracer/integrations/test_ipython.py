"""``%load_ext stepscope`` and ``%%stepscope`` in a shell of IPython; skipped where that is not installed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("IPython")

from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

from stepscope.tracer.integrations.ipython import config_of

pytestmark = pytest.mark.slow


OVERFLOW = "torch.compile(lambda x: torch.softmax((x.half() @ x.half()).float(), -1))(torch.full((64, 64), 300.0))"


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)
    shell = InteractiveShell()
    shell.history_manager.enabled = False
    shell.run_line_magic("load_ext", "stepscope")
    return shell


def shown(shell: Any, cell: str) -> tuple[Any, Any]:
    with capture_output() as captured:
        result = shell.run_cell(cell)
    return result, captured


@pytest.mark.filterwarnings("ignore")  # the cell imports torch, whose torch/utils/mkldnn.py uses a deprecated function
def test_a_cell_is_recorded_and_its_findings_are_shown(shell: Any, tmp_path: Path) -> None:
    result, captured = shown(shell, f"%%stepscope --level values --out there\nimport torch\ny = {OVERFLOW}\n1 + 1")
    assert result.success
    assert len([*(tmp_path / "there").glob("*.log")]) == 1
    assert re.search(r"^[✖▲] ", captured.stdout, re.MULTILINE), captured.stdout
    assert f"stepscope serve {tmp_path / 'there'}" in captured.stdout
    assert shell.user_ns["y"].isnan().all()


def test_a_cell_without_a_compile_says_so(shell: Any, tmp_path: Path) -> None:
    result, captured = shown(shell, "%%stepscope --out nothing\nx = 1")
    assert (result.success, shell.user_ns["x"]) == (True, 1)
    assert "nothing was recorded" in captured.stdout or "No compiled graph ran." in captured.stdout


def test_an_exception_is_that_of_the_cell_and_shown_once(shell: Any) -> None:
    result, captured = shown(shell, "%%stepscope\nraise ValueError('its own')")
    assert isinstance(result.error_in_exec, ValueError)
    assert re.sub(r"\x1b\[[0-9;]*m", "", captured.stdout).count("ValueError: its own") == 1
    assert shell.run_cell("1 + 1").success


@pytest.mark.parametrize("line", ["--level loud", "--nothing", "word", "--steps 5:3"])
def test_a_wrong_option_is_one_sentence(shell: Any, line: str) -> None:
    result, _ = shown(shell, f"%%stepscope {line}\nx = 1")
    assert isinstance(result.error_in_exec, UsageError)
    assert "x" not in shell.user_ns


def test_options_are_those_of_the_command() -> None:
    config = config_of(["--level=values", "--kernels", "a*,b", "--verify-before", "--no-provenance", "-o", "there"])
    assert (config.level, config.kernels, config.verify_before) == ("values", ("a*", "b"), True)
    assert (config.provenance, config.directory) == (False, Path("there"))


def test_a_recording_that_was_not_on_is_no_cell_without_a_graph(shell: Any) -> None:
    import torch  # noqa: F401

    _, captured = shown(shell, "%%stepscope --level off\nx = 1")
    assert "nothing was recorded, because the recording was not on" in captured.stdout
    _, captured = shown(shell, "%%stepscope --out there\nget_ipython().run_cell('%%stepscope\\nx = 1')")
    assert "nothing was recorded, because the recording was not on" in captured.stdout
