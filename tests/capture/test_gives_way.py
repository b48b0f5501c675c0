"""A recording of the environment gives way to one that the program's code asks for, and goes on afterwards."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from stepscope.viewer.overview.queries.overview import overview
from stepscope.viewer.store.open import open_trace
from tests import python_processes

pytestmark = pytest.mark.slow


PROGRAM = """
import sys
from _stepscope_autostart import autostart
import torch, stepscope
autostart()
run = torch.compile(lambda value: (value @ value).sin())
value = torch.ones(4, 4)
for _ in range(int(sys.argv[1])):
    run(value)
with stepscope.trace("inner"):
    for _ in range(3):
        run(value)
run(value)
run(value)
"""


def calls_in(folder: Path) -> int:
    with open_trace(folder) as trace:
        return (overview(trace).counts.launches or 0) // 2


@pytest.mark.parametrize("before", [0, 4])
def test_each_call_is_in_one_of_the_two(tmp_path: Path, before: int) -> None:
    environment = {**os.environ, "STEPSCOPE_TRACE": "outer", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    done = python_processes.run([sys.executable, "-c", PROGRAM, str(before)], cwd=tmp_path, env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert calls_in(tmp_path / "inner") == 3
    assert calls_in(tmp_path / "outer") == before + 2
