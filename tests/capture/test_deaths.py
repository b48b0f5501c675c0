"""Each kind of death of a compiled program, through the command line: `stepscope run`, `stepscope summary --json`."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.capture.conftest import ROOT, clean_environment

pytestmark = pytest.mark.filterwarnings("ignore")
COMMAND = [sys.executable, "-c", "from viewer.cli import main; main()"]
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
    exit_code: int
    launch: int | None
    """In its step; None: in none."""
    title: str
    """What the verdict says of how it died."""
    signal: str | None = None


DEATHS = [
    Death("kernel", 139, 4, "died of SIGSEGV", "SIGSEGV"),
    Death("kill", 137, 3, "died of SIGKILL", "SIGKILL"),
    Death("abort-thread", 134, 3, "died of SIGABRT", "SIGABRT"),
    Death("null-backward", 139, 6, "died of SIGSEGV", "SIGSEGV"),
    Death("exit", 3, 3, "left with exit code 3"),
    Death("raise", 1, 3, "ValueError: planted"),
    Death("kernel-fork", 0, 4, "died"),
    Death("kill-spawn", 1, 3, "died"),
    Death("idle", 137, None, "died of SIGKILL", "SIGKILL"),
]
WRAPPER = "kernel-wrapper"


@dataclass(frozen=True)
class Told:
    """What one program that died left behind."""

    exit_code: int
    seen: dict[str, list[Any]]
    """Operator -> size, stride, bytes of the storage and its address, as the operator met its argument first."""
    answer: dict[str, Any]

    @property
    def finding(self) -> dict[str, Any]:
        (found,) = [one for one in self.answer["findings"] if one["severity"] != "info"]
        assert found["kind"] == "crash"
        return dict(found)


def die(folder: Path, how: str, *options: str) -> Told:
    command = [*COMMAND, "run", *options, "-o", str(folder / how), "--", "-m", "tests.capture.dying_program", how]
    environment = clean_environment(folder / "cache")
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=500, check=False)
    told = subprocess.run(
        [*COMMAND, "summary", "--json", str(folder / how)], cwd=ROOT, capture_output=True, timeout=100
    )
    assert told.returncode == 0, (run.stderr[-3000:], told.stderr[-3000:])
    lines = [json.loads(line) for line in run.stdout.splitlines() if line.startswith('["')]
    return Told(run.returncode, {name: rest for name, *rest in lines}, json.loads(told.stdout))


@pytest.fixture(scope="module")
def deaths(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Future[Told]]:
    """One by one where they compile; the others find that in the cache."""
    folder = tmp_path_factory.mktemp("deaths")
    pool = ThreadPoolExecutor(2)
    told = {
        WRAPPER: pool.submit(die, folder, WRAPPER, "--aoti", "values"),
        "kernel": pool.submit(die, folder, "kernel"),
    }
    told["kernel"].result()
    return told | {death.how: pool.submit(die, folder, death.how) for death in DEATHS if death.how not in told}


@pytest.mark.parametrize("death", DEATHS, ids=[death.how for death in DEATHS])
def test_where_and_how_it_died(deaths: dict[str, Future[Told]], death: Death) -> None:
    told = deaths[death.how].result()
    assert told.exit_code == death.exit_code
    finding = told.finding
    evidence = finding["evidence"]
    assert (finding["severity"], evidence["signal"]) == ("critical", death.signal)
    assert death.title in finding["title"]
    assert evidence["exit_code"] == (death.exit_code if death.how in ("exit", "raise") else None)
    if death.launch is None:
        assert finding["title"].endswith(f"after step {LAST_STEP - 1}, in no launch")
        assert (finding["launch"], finding["kernel"], evidence["arguments"]) == (None, None, [])
        return
    assert f"in step {LAST_STEP}, in launch {death.launch} of it, {KERNELS[death.launch]}" in finding["title"]
    assert (finding["step"], evidence["launch_in_step"], evidence["launch_returned"]) == (
        LAST_STEP,
        death.launch,
        False,
    )
    assert finding["kernel"].startswith(KERNELS[death.launch])
    assert "dying_program.py" in finding["source"]["file"]
    before = [(row["step"], row["launch_in_step"]) for row in evidence["ran_before"]]
    assert before[: death.launch - 1] == [(LAST_STEP, number) for number in range(death.launch - 1, 0, -1)]


@pytest.mark.parametrize("death", [one for one in DEATHS if one.launch], ids=lambda death: death.how)
def test_what_it_had_in_its_hands(deaths: dict[str, Future[Told]], death: Death) -> None:
    """The operators say themselves what their arguments are."""
    told = deaths[death.how].result()
    evidence = told.finding["evidence"]
    operator = {3: "forward", 6: "backward"}.get(death.launch or 0)
    if operator is None:
        assert [one["size"] for one in evidence["arguments"] if one["role"] == "in"] == [[4], [8, 16]]
        known = {(row["does"], row["leaves_storage"]) for row in evidence["index_ranges"]}
        assert ("reads", None) in known
        assert ("reads", True) not in known
        assert "its index is read from memory" in evidence["inside"]
        return
    read = evidence["arguments"][0]
    facts = [read[name] for name in ("size", "stride", "storage_bytes", "address")]
    assert facts == told.seen[operator]
    assert read["written_by_launch_in_step"] == (death.launch or 0) - 1


def test_a_death_in_a_c_plus_plus_wrapper(deaths: dict[str, Future[Told]]) -> None:
    """Its launches, and what went into them, are what it printed."""
    told = deaths[WRAPPER].result()
    assert told.exit_code == 139
    finding = told.finding
    assert (finding["step"], finding["evidence"]["launch_in_step"]) == (LAST_STEP, 2)
    assert "died of SIGSEGV" in finding["title"]
    assert finding["kernel"].startswith("cpp_fused_index_relu_sin_sum_")
    read = {one["argument"]: one for one in finding["evidence"]["arguments"]}
    (index,) = [one for one in read.values() if one["dtype"] == "int64"]
    assert index["size"] == [4]
    assert f"largest {float(FAR):.6g}" in index["values"]
    assert read["buf0"]["written_by_kernel"] == "aoti_torch_cpu_mm_out"
    assert not any("C++ wrapper" in one["title"] for one in told.answer["findings"])
