"""Programs with a planted slowness: the summary names it with its line; fast twins have no such finding.

Times are not asserted here: ``python -m tests.slowness`` prints shares.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests import python_processes
from tests.capture.conftest import clean_environment
from tests.capture.test_deaths import COMMAND

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.slow]


class Planted(NamedTuple):
    program: str
    kind: str
    line: str | None
    """Part of the source line that the finding names; None if its cause has no line."""
    told: str
    """Part of what the finding says."""


PLANTED = (
    Planted("break_in_loop", "break_in_hot_loop", "log_statistics(self.rounds)", "torch.compiler.disable"),
    Planted("sync_in_loop", "synchronizing_call", "x[x > 0]", "capture_dynamic_output_shape_ops = True"),
    Planted("recompile_each_step", "recompiles_each_step", "self.factor if self.slow", "self.factor changed"),
    Planted("host_bound", "host_bound", None, "launches take"),
    Planted("contiguous_copies", "contiguous_copies", "permute(0, 2, 1).contiguous()", "to another layout"),
    Planted("metrics_in_loop", "uncompiled_work", "math.sqrt(number)", "the end of the step"),
    Planted("function_in_python", "synchronizing_call", "x.max().item()", "makes Python run all of search"),
    Planted("data_loader", "data_waits", "time.sleep(0.004)", "num_workers"),
    Planted("growing_sequence", "growing_sequence", "compiled(batch)", "x.size()[1] grows from 352 to 1,696"),
    Planted("slower_kernels", "slower_kernels", "torch.sin(x * 1.1)", "From step 16 on, kernels take"),
    Planted("slow_choice", "slow_choice", "torch.bmm(rows, one)", "is in use, which the autotuner measured"),
    Planted("slow_shape", "slow_shape", "torch.fft.rfft(x)", "for x.size()[1] = 8,191 as for x.size()[1] = 8,192"),
    Planted("slow_rank", "slow_rank", "planted(lambda: time.sleep(0.02))", "Rank 1 spends"),
)


SHOWN = {"sync_in_loop", "recompile_each_step", "data_loader", "growing_sequence", "slow_rank"}
"""Programs whose findings are those of the examples in the documentation, which `test_examples` runs."""
TESTED = [planted for planted in PLANTED if planted.program not in SHOWN]
ATTEMPTS = 3
"""Other programs may take the cores from a run, and its shares are other ones then."""


def recorded(program: str, what: str, folder: Path) -> tuple[dict[str, float], list[dict[str, Any]]]:
    """Return what the program measured itself, and the findings; of two ranks, what rank 1 measured."""
    environment = clean_environment(folder / "cache")
    arguments = ["-m", "tests.slowness.programs", program, what]
    if program == "slow_rank":
        launcher = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--log-dir", folder / "ranks", "-r", "3"]
        environment["STEPSCOPE_TRACE"] = str(folder / what)
        ran = python_processes.run([sys.executable, *launcher, *arguments], env=environment, timeout=300)
        (out,) = (folder / "ranks").rglob("1/stdout.log")
        said = out.read_text() or ran.stderr
    else:
        ran = python_processes.run(
            [*COMMAND, "run", "-o", folder / what, "--", *arguments], env=environment, timeout=300
        )
        said = ran.stdout
    assert ran.returncode == 0, ran.stderr[-3000:]
    answer = python_processes.run([*COMMAND, "summary", folder / what, "--json"], check=True)
    measured = next(line for line in reversed(said.splitlines()) if line.startswith('{"share"'))
    return json.loads(measured), json.loads(answer.stdout)["findings"]


def of_kind(planted: Planted, what: str, folder: Path, expected: int) -> list[dict[str, Any]]:
    """Return the findings of the planted kind that say what is expected, of the first attempt with that many."""
    found: list[dict[str, Any]] = []
    for attempt in range(ATTEMPTS):
        _, findings = recorded(planted.program, what, folder / str(attempt))
        found = [one for one in findings if one["kind"] == planted.kind]
        if expected:
            found = [one for one in found if any(planted.told in said for said in (one["title"], *one["proof"]))]
        if len(found) == expected:
            break
    return found


@pytest.mark.parametrize("planted", TESTED, ids=lambda planted: planted.program)
def test_planted_slowness_is_named(planted: Planted, tmp_path: Path) -> None:
    (finding,) = of_kind(planted, "slow", tmp_path, 1)
    if planted.line is not None:
        assert planted.line in finding["source"]["code"]


@pytest.mark.parametrize("planted", TESTED, ids=lambda planted: planted.program)
def test_fast_twins_have_no_such_finding(planted: Planted, tmp_path: Path) -> None:
    assert of_kind(planted, "fast", tmp_path, 0) == []
