"""Each kind of death of a compiled program, through the command line: `stepscope run`, `stepscope summary --json`."""

from __future__ import annotations

import json
import re
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests import python_processes
from tests.capture.conftest import clean_environment

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.slow]
COMMAND = [sys.executable, "-c", "from stepscope.viewer.cli import main; main()"]
LAST_STEP, FAR = 3, 1 << 40
"""As the program has them."""
KERNELS = {
    1: "extern_kernels.mm",
    2: "cpp_fused_forward_relu_",
    3: "torch.ops.planted.forward.default",
    4: "cpp_fused_cos_index_sin_sum_",
    6: "torch.ops.planted.backward.default",
}
"""Of a step; some by what their names begin with."""


@dataclass(frozen=True)
class Death:
    how: str
    launch: int | None
    """In its step; None: in none."""
    title: str
    """What the verdict says of how it died."""
    exit_code: int | None = None
    """Of the command; None: a child of it died."""
    signal: str | None = None

    @property
    def run(self) -> str:
        """The program that it is a part of."""
        return "fork" if self.how in FORKED else self.how


FORKED = "kernel", "null-backward", "raise"
DEATHS = [
    Death("kernel-crash", 4, "was killed by SIGSEGV", 139, "SIGSEGV"),
    Death("abort-thread", 3, "was killed by SIGABRT", 134, "SIGABRT"),
    Death("exit", 3, "exited with code 3", 3),
    Death("idle", None, "was killed by SIGKILL", 137, "SIGKILL"),
    Death("kill-spawn", 3, "died"),
    Death("kernel", 4, "died"),
    Death("null-backward", 6, "died"),
    Death("raise", 3, "ValueError: planted"),
]
CRASH, WRAPPER = "kernel-crash", "kernel-wrapper"
OPTIONS = {CRASH: ["--crash", "--max-runs", "3"], WRAPPER: ["--aoti", "values"]}


@dataclass(frozen=True)
class Told:
    """What one program that died left behind."""

    exit_code: int
    seen: list[list[Any]]
    """Operator, size, stride, bytes of the storage, its address and the largest element, at each call."""
    answer: dict[str, Any]

    @property
    def findings(self) -> list[dict[str, Any]]:
        """In the order in which they died."""
        found = [one for one in self.answer["findings"] if one["severity"] != "info"]
        assert {one["kind"] for one in found} == {"crash"}
        return sorted(found, key=lambda one: int(one["evidence"]["last_record_unix_ns"]))


def die(folder: Path, how: str) -> Told:
    options = [*OPTIONS.get(how, ()), "-o", str(folder / how)]
    command = [*COMMAND, "run", *options, "--", "-m", "tests.capture.dying_program", how]
    environment = clean_environment(folder / "cache")
    run = python_processes.run(command, env=environment, timeout=500, alone=how == "fork")
    told = python_processes.run([*COMMAND, "summary", "--json", folder / how])
    assert told.returncode == 0, (run.stderr[-3000:], told.stderr[-3000:])
    lines = [json.loads(line) for line in run.stdout.splitlines() if line.startswith('["')]
    return Told(run.returncode, lines, json.loads(told.stdout))


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Future[Told]]:
    """Two at a time; the first two compile, the others find it in the cache."""
    folder = tmp_path_factory.mktemp("deaths")
    pool = ThreadPoolExecutor(2)
    told = {how: pool.submit(die, folder, how) for how in (WRAPPER, "exit")}
    told["exit"].result()
    left = dict.fromkeys(death.run for death in DEATHS if death.run not in told)
    return told | {run: pool.submit(die, folder, run) for run in left}


@pytest.fixture(params=DEATHS, ids=lambda death: death.how)
def death(request: pytest.FixtureRequest) -> Death:
    found = request.param
    assert isinstance(found, Death)
    return found


@pytest.fixture
def told(runs: dict[str, Future[Told]], death: Death) -> Told:
    return runs[death.run].result()


@pytest.fixture
def finding(told: Told, death: Death) -> dict[str, Any]:
    dead = FORKED if death.run == "fork" else (death.how,)
    assert len(told.findings) == len(dead)
    return told.findings[dead.index(death.how)]


def test_where_and_how_it_died(death: Death, told: Told, finding: dict[str, Any]) -> None:
    evidence = finding["evidence"]
    assert (finding["severity"], evidence["signal"]) == ("critical", death.signal)
    assert death.title in finding["title"]
    if death.exit_code is not None:
        assert told.exit_code == death.exit_code
        assert evidence["exit_code"] == (None if death.signal else death.exit_code)
    if death.launch is None:
        assert finding["title"].endswith(f"after step {LAST_STEP - 1}, outside any launch")
        assert (finding["launch"], finding["kernel"], evidence["arguments"]) == (None, None, [])
        return
    place = rf" in launch \d+ of step {LAST_STEP}, "
    assert re.search(place + re.escape(KERNELS[death.launch]), finding["title"])
    assert (finding["step"], evidence["launch_in_step"], evidence["launch_returned"]) == (
        LAST_STEP,
        death.launch,
        False,
    )
    assert finding["kernel"].startswith(KERNELS[death.launch])
    before = [(row["step"], row["launch_in_step"]) for row in evidence["ran_before"]]
    assert before[: death.launch - 1] == [(LAST_STEP, number) for number in range(death.launch - 1, 0, -1)]
    assert "dying_program.py" in finding["source"]["file"]


def test_what_it_had_in_its_hands(death: Death, told: Told, finding: dict[str, Any]) -> None:
    """The operators say themselves what their arguments are."""
    evidence = finding["evidence"]
    if death.launch == 4:
        assert [one["size"] for one in evidence["arguments"] if one["role"] == "in"] == [[4], [8, 16]]
        known = {(row["does"], row["leaves_storage"]) for row in evidence["index_ranges"]}
        assert ("reads", None) in known
        assert ("reads", True) not in known
        has_values = death.run == CRASH
        assert ("its index is read from memory" in evidence["inside"]) is not has_values
        assert ("with the values of primals_3, the kernel reads" in evidence["inside"]) is has_values
    elif death.launch is not None:
        read = evidence["arguments"][0]
        operator = "forward" if death.launch == 3 else "backward"
        facts = [operator, *(read[name] for name in ("size", "stride", "storage_bytes", "address"))]
        assert facts in [row[:-1] for row in told.seen]
        assert read["written_by_launch_in_step"] == death.launch - 1


def test_each_run_names_the_launch_and_the_last_has_values(runs: dict[str, Future[Told]]) -> None:
    told = runs[CRASH].result()
    kernel = told.findings[0]["kernel"]
    rows = told.answer["crash_runs"]
    assert [(row["kernel"], row["survived"]) for row in rows] == [(kernel, None), (kernel, True), (kernel, True)]
    assert rows[2]["asked"][-2] == "level values"
    assert rows[2]["asked"][-1] == f"kernels {kernel}, {KERNELS[3]}"
    index, read = told.findings[0]["evidence"]["arguments"][:2]
    assert (read["written_by_launch_in_step"], read["values_step"]) == (3, None)
    (*_, (*_, largest)) = [row for row in told.seen if row[0] == "forward"]
    assert f"largest magnitude {2 * largest:.6g} " in read["values"]
    assert f"largest magnitude {float(FAR):.6g}" in index["values"]
    assert index["values_step"] is None
    (far,) = [row for row in told.findings[0]["evidence"]["index_ranges"] if row["by_values_of"]]
    assert (far["by_values_of"], far["first"], far["leaves_storage"]) == ([index["buffer"]], 0, None)
    assert far["last"] == (FAR + 1) * 16 + 15


def test_a_death_in_a_c_plus_plus_wrapper(runs: dict[str, Future[Told]]) -> None:
    """Its launches, and what went into them, are what it printed."""
    told = runs[WRAPPER].result()
    assert told.exit_code == 139
    (finding,) = told.findings
    assert (finding["step"], finding["evidence"]["launch_in_step"]) == (LAST_STEP, 2)
    assert "was killed by SIGSEGV" in finding["title"]
    assert finding["kernel"].startswith("cpp_fused_index_relu_sin_sum_")
    read = {one["argument"]: one for one in finding["evidence"]["arguments"]}
    (index,) = [one for one in read.values() if one["dtype"] == "int64"]
    assert index["size"] == [4]
    assert f"largest magnitude {float(FAR):.6g}" in index["values"]
    assert read["buf0"]["written_by_kernel"] == "aoti_torch_cpu_mm_out"
    assert not any("C++ wrapper" in one["title"] for one in told.answer["findings"])
