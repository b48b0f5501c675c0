"""Tests scalar arguments of compiled programs from end to end: recorded per call, shown, and reproduced."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import stepscope
from stepscope.viewer.findings import all_findings
from stepscope.viewer.graphs.queries.launches import launch_detail
from stepscope.viewer.repro.write import write_reproducer
from stepscope.viewer.store import sql
from stepscope.viewer.store.open import open_trace
from stepscope.viewer.store.trace import Trace
from tests import python_processes
from tests.test_repro import SMALL, launch_of, run_fresh

pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # torch/utils/mkldnn.py uses a deprecated function
    pytest.mark.slow,
]

SIZES = (8, 11, 8)
DEADLY = """
import ctypes
import torch

@torch.library.custom_op("deadly::read", mutates_args=())
def read(x: torch.Tensor, *, times: int, factor: float, flag: bool = False) -> torch.Tensor:
    if times > 20:
        ctypes.string_at(0)
    return x * times * factor

@read.register_fake
def _(x, *, times, factor, flag=False):
    return torch.empty_like(x)

function = torch.compile(lambda x, n: read((x * n).sin(), times=2 * n + 1, factor=0.5, flag=True), dynamic=True)
for n in (5, 7, 9, 11):
    function(torch.ones(n, 3), n)
"""


def model(x: torch.Tensor, n: int, index: torch.Tensor) -> tuple[torch.Tensor, ...]:
    rows = int(index.item())
    torch._check(rows >= 1)  # type: ignore[no-untyped-call]
    torch._check(rows <= x.shape[0])  # type: ignore[no-untyped-call]
    return (x * n).sin() @ x.t(), x[:rows].cos() + n, torch.addmm(x[0], x, x, alpha=2, beta=0.5)


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trace]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    with (
        torch._dynamo.config.patch(capture_scalar_outputs=True),
        stepscope.trace(tmp_path_factory.mktemp("log"), level="save") as recorder,
    ):
        compiled = torch.compile(model, dynamic=True)
        for call, size in enumerate(SIZES):
            compiled(torch.randn(size, size), size + 5, torch.tensor(call + 2))
            stepscope.step()
    assert recorder.path is not None
    with open_trace(recorder.path) as found:
        yield found


def values(trace: Trace, launch: int) -> dict[str | None, str | None]:
    found = launch_detail(trace, launch)
    assert found is not None
    return {row.name: row.value for row in found.site.scalars}


def generated(trace: Trace, step: int) -> list[int]:
    """Return the launches of kernels that Inductor generated, in order."""
    statement = "SELECT launch FROM launches JOIN sites USING (site) WHERE step = ? AND kind = 'cpp' ORDER BY launch"
    return [launch for (launch,) in sql.rows(trace, statement, [step])]


def test_each_call_has_the_numbers_that_it_was_given(trace: Trace) -> None:
    for step, size in enumerate(SIZES):
        found = sql.rows(
            trace, "SELECT launch FROM launches JOIN sites USING (site) WHERE step = ? AND kind = 'cpp'", [step]
        )
        numbers = {value for (launch,) in found for value in values(trace, launch).values()}
        assert {str(size), str(size + 5)} <= numbers <= {str(size), str(size + 5), str(step + 2)}


def test_factors_of_a_matrix_product(trace: Trace) -> None:
    for step in range(len(SIZES)):
        assert values(trace, launch_of(trace, "extern_kernels.addmm", step)) == {"alpha": "2", "beta": "0.5"}


@pytest.mark.parametrize("step", [0, 1, 2])
def test_a_launch_at_dynamic_shapes_runs_again_as_it_was(trace: Trace, tmp_path: Path, step: int) -> None:
    out = tmp_path / "repro.py"
    write_reproducer(trace, generated(trace, step)[0], out, embed_bytes=SMALL)
    done = run_fresh(out)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "verdict: same\n" in done.stdout
    assert "made up" not in done.stdout


def test_a_process_that_dies_leaves_the_numbers_of_the_call_that_it_died_in(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(DEADLY)
    command = [sys.executable, "-c", "from stepscope.viewer.cli import main; main()"]
    python_processes.run([*command, "run", "-o", "trace", "--", "program.py"], cwd=tmp_path)
    with open_trace(tmp_path / "trace") as trace:
        (finding,) = (one for one in all_findings(trace) if one.kind == "crash")
        assert finding.evidence["signal"] == signal.Signals.SIGSEGV.name
        given = {row["name"]: (row["value"], row["type"]) for row in finding.evidence["scalars"]}
        assert given == {"times": ("23", "int"), "factor": ("0.5", "float"), "flag": ("True", "bool")}
        assert finding.evidence["with"][0].startswith("times = 23 (")
        assert [row["size"] for row in finding.evidence["arguments"] if row["role"] == "in"] == [[11, 3]]
