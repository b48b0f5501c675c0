"""`stepscope run --elements`: what is recorded of small tensors is what the program itself prints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests import python_processes
from tests.capture.conftest import clean_environment
from tests.capture.test_deaths import COMMAND

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.slow]
PROGRAM = """
import json, torch

@torch.library.custom_op("shows::all", mutates_args=())
def show(x: torch.Tensor) -> torch.Tensor:
    print(json.dumps([str(n) for n in x.reshape(-1).tolist()]), flush=True)
    return x * 2

show.register_fake(torch.empty_like)

@torch.compile
def model(x, index):
    return show((x @ x).log())[index].sum(), x.repeat(3, 3).cos()

for number in range(2):
    model(torch.arange(-4.0, 12.0).view(4, 4) * (number + 1), torch.tensor([3, 0, 2]))
"""


def ask(logs: Path, question: str) -> list[Any]:
    command = [*COMMAND, "sql", str(logs), question, "--json"]
    answer = python_processes.run(command, check=True)
    rows: list[Any] = json.loads(answer.stdout)["rows"]
    return rows


def test_elements_of_small_tensors(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    logs = tmp_path / "logs"
    options = ["--level", "values", "--elements", "64", "-o", str(logs)]
    command = [*COMMAND, "run", *options, "--", tmp_path / "program.py"]
    run = python_processes.run(command, env=clean_environment(tmp_path / "cache"), timeout=500)
    assert run.returncode == 0, run.stderr[-3000:]
    printed = [json.loads(line) for line in run.stdout.splitlines() if line.startswith('["')]
    question = (
        "SELECT v.numel, v.elements FROM value_rows v JOIN sites s USING (site) JOIN arguments a"
        " ON a.version_site = v.site AND a.version_argument = v.argument JOIN sites r ON r.site = a.site"
        " WHERE r.kernel LIKE 'torch.ops.shows%' AND v.moment = 'after' ORDER BY v.launch"
    )
    rows = ask(logs, question)
    assert len(rows) == len(printed) == 2
    for (numel, elements), expected in zip(rows, printed, strict=True):
        found = [float(number) for number in json.loads(elements)]
        assert numel == len(found) == 16
        assert [f"{number:.6g}" for number in found] == [f"{float(number):.6g}" for number in expected]
    everything = ask(logs, "SELECT DISTINCT numel, elements IS NULL FROM value_rows ORDER BY 1")
    assert all(is_left_out is (numel > 64) for numel, is_left_out in everything)
    assert any(is_left_out for _, is_left_out in everything)
