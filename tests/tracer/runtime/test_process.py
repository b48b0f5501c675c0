"""The facts of the process that its log begins with."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from stepscope.tracer.config import TraceConfig
from stepscope.tracer.runtime.process import run_record

SPAWNED = ["python", "-c", "from multiprocessing.spawn import spawn_main; spawn_main()", "--multiprocessing-fork"]


@pytest.mark.parametrize(
    ("original", "found"),
    [
        (["python", "-O", "train.py", "--lr", "1"], ["python", "-O", "train.py", "--lr", "1"]),
        (SPAWNED, ["python", "train.py", "--lr", "1"]),
    ],
    ids=["started by a user", "spawned"],
)
def test_the_command_names_the_script(original: list[str], found: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    monkeypatch.setattr(sys, "orig_argv", original)
    monkeypatch.setattr(sys, "argv", ["train.py", "--lr", "1"])
    assert run_record(None, TraceConfig(Path("trace"))).argv == found
