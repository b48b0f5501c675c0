"""Tests what `stepscope measure` keeps, and what recordings read of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

from stepscope.tracer.runtime import machine_limits
from stepscope.tracer.runtime.machine import cpu_model, machine
from stepscope.viewer.cli.measuring import measure


@pytest.fixture(autouse=True)
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(machine_limits, "BUFFER_BYTES", {"cpu": 1 << 16, "cuda": 1 << 16})
    monkeypatch.setattr(machine_limits, "MATRIX_ROWS", {"cpu": (16, 32), "cuda": (16, 32)})


def test_figures_are_measured_once_and_recordings_hold_them() -> None:
    assert machine(torch).limits == {}
    told = json.loads(CliRunner().invoke(measure, ["--json"]).output)
    assert set(told["cpu"]) == {"memory", "float32", "bfloat16", "float16"}
    assert all(figure > 0 for figure in told["cpu"].values())
    assert machine(torch).limits == told


def test_figures_of_another_machine_are_not_those_of_this_one() -> None:
    machine_limits.measure("another processor")
    assert machine(torch).limits == {}
    machine_limits.measure(cpu_model())
    assert set(machine(torch).limits) == {"cpu"}
    assert machine_limits.known_limits("another processor")["cpu"]


@pytest.mark.parametrize("text", ["", "[1", "[1, 2]", '{"cpu": 3}', "\xff"])
def test_a_file_that_cannot_be_read_holds_no_figures(text: str) -> None:
    file = machine_limits.figures_file()
    file.parent.mkdir(parents=True)
    file.write_text(text, "latin-1")
    assert machine(torch).limits == {}
    file.write_text(json.dumps({"Some GPU": {"memory": 3, "float32": "fast", "bfloat16": True, "float16": -1}}))
    assert machine(torch).limits == {"Some GPU": {"memory": 3.0}}


def test_a_folder_that_cannot_be_written_gets_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    answer = CliRunner().invoke(measure)
    assert answer.exit_code
    assert "cannot be written" in str(answer.exception or answer.output)
