"""An illegal access through the command line: `stepscope run --crash`, then `stepscope summary --json`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.capture.conftest import ROOT, clean_environment

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]
COMMAND = [sys.executable, "-c", "from stepscope.viewer.cli import main; main()"]
PROGRAM = """
import torch
import triton
from triton import language as tl

ELEMENTS, LAST_STEP = 1 << 16, 3

@triton.jit
def shifted(source, target, shifts, elements, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(source + place, mask=place < elements)
    tl.store(target + place + tl.load(shifts), value + 1.0, mask=place < elements)

@torch.compile
def model(x, shifts):
    y = torch.mm(x.view(256, 256), x.view(256, 256)).view(-1)
    out = torch.empty_like(y)
    shifted[(ELEMENTS // 1024,)](y, out, shifts, ELEMENTS, BLOCK=1024)
    return out.sin()

x, shifts = torch.zeros(ELEMENTS, device="cuda"), torch.zeros(1, dtype=torch.int64, device="cuda")
for step in range(LAST_STEP + 1):
    if step == LAST_STEP:
        shifts.fill_(1 << 40)
        torch.cuda.synchronize()
    model(x, shifts)
torch.cuda.synchronize()
"""


def test_an_illegal_access_is_put_down_to_its_launch(tmp_path: Path) -> None:
    """Among those in flight as it is; the only one with one launch at a time."""
    program, trace = tmp_path / "program.py", tmp_path / "trace"
    program.write_text(PROGRAM)
    run = subprocess.run(
        [*COMMAND, "run", "--crash", "--max-runs", "3", "-o", str(trace), "--", str(program)],
        cwd=ROOT, env=clean_environment(tmp_path / "cache"), capture_output=True, text=True, timeout=500, check=False,
    )  # fmt: skip
    assert "illegal memory access" in run.stderr, run.stderr[-3000:]
    told = subprocess.run([*COMMAND, "summary", "--json", str(trace)], cwd=ROOT, capture_output=True, check=True)
    answer = json.loads(told.stdout)
    crashes = [one for one in answer["findings"] if one["kind"] == "crash"]
    assert len(crashes) == 1, [one["title"] for one in crashes]
    (finding,) = crashes
    evidence = finding["evidence"]
    assert "illegal memory access" in evidence["device_error"]
    assert (finding["step"], evidence["launch_in_step"]) == (3, 2)
    assert finding["kernel"].startswith("shifted")
    assert [row["kernel"] for row in evidence["in_flight"]] == [finding["kernel"]]
    first, second, third = answer["crash_runs"]
    assert first["in_flight"] >= second["in_flight"] == third["in_flight"] == 1
    assert [(row["kernel"], row["survived"]) for row in (second, third)] == [(finding["kernel"], True)] * 2
    read, *_ = evidence["arguments"]
    (shifts,) = [row for row in evidence["arguments"] if row["dtype"] == "int64"]
    assert (shifts["values_step"], f"largest magnitude {float(1 << 40):.6g}" in shifts["values"]) == (None, True)
    assert (read["size"], read["storage_bytes"], read["written_by_launch_in_step"]) == ([1 << 16], 4 << 16, 1)
    ranges = {(row["parameter"], row["does"]): row for row in evidence["index_ranges"]}
    assert (ranges["source", "reads"]["first"], ranges["source", "reads"]["last"]) == (0, (1 << 16) - 1)
    written = ranges["target", "writes"]
    assert (written["first"], written["last"], written["is_exact"]) == (1 << 40, (1 << 40) + (1 << 16) - 1, False)
    assert written["by_values_of"] == [shifts["buffer"]]
    assert f"with the values of {shifts['buffer']}, the kernel writes" in evidence["inside"]
