"""A kernel writes where it must not, as one of 300 launches: the ring must say which were in flight."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

from stepscope.viewer.ingest.logs import read_logs
from stepscope.viewer.ingest.sources import find_logs
from tests.gpu.ring_program import LAUNCHES, PLANTED

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]

ROOT = Path(__file__).resolve().parents[2]
ENDS_AFTER_S = 200


class InFlight(NamedTuple):
    role: str
    step: int
    position: int
    kernel: str
    state: str


def die(folder: Path, how: str, **environment: str) -> tuple[list[InFlight], int]:
    """Run the program, which must die of the planted write; what the ring says of its device, and the last step."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.gpu.ring_program", str(folder), how],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=ENDS_AFTER_S,
        check=False,
    )
    assert done.returncode != 0, done.stdout
    assert "illegal memory access" in done.stderr, done.stderr[-3000:]
    rows = read_logs(find_logs(folder))
    assert not rows.tables["problems"]
    kernels = {row["site"]: row["kernel"] for row in rows.tables["sites"]}
    states = {
        int(call): state
        for part in rows.columns["calls"]
        for call, state in zip(part["call"].tolist(), part["state"].tolist(), strict=True)
    }
    found = [
        InFlight(row["role"], row["step"], row["position"], kernels[row["site"]], states[row["call"]])
        for row in rows.tables["ring_launches"]
        if row["device"] is not None
    ]
    return found, max(step for part in rows.columns["calls"] for step in part["step"].tolist())


@pytest.mark.parametrize("how", ["plain", "graphs", "manual", "second"])
@pytest.mark.parametrize("is_blocking", [False, True])
def test_the_launch_that_wrote_out_of_bounds_is_among_those_in_flight(
    how: str, is_blocking: bool, tmp_path: Path
) -> None:
    if how == "second" and torch.cuda.device_count() < 2:
        pytest.skip("one CUDA device")
    environment = {"CUDA_LAUNCH_BLOCKING": "1"} if is_blocking else {}
    found, last_step = die(tmp_path, how, **environment)
    in_flight = [row for row in found if row.role == "in_flight"]
    planted = [row for row in in_flight if row.position == PLANTED]
    assert planted, found
    assert all("add_one" in row.kernel for row in planted)
    if is_blocking:
        assert in_flight == planted, found
        assert len(planted) == 1
    else:
        steps = {row.step for row in in_flight}
        by_step = {step: [row.position for row in in_flight if row.step == step] for step in steps}
        spans = {step: (min(positions), max(positions)) for step, positions in by_step.items()}
        assert min(row.position for row in in_flight) > PLANTED - 70, (last_step, spans)
        assert len(in_flight) < LAUNCHES
    assert {row.step for row in planted} == {last_step}
