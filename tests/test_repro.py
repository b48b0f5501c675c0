"""Tests `stepscope repro` from end to end: launches of a compiled program run again in their own processes."""

from __future__ import annotations

import ast
import os
import runpy
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, cast

import pytest
import torch

import stepscope
from stepscope.viewer.errors import StepscopeError
from stepscope.viewer.repro.write import worst_launch, write_reproducer
from stepscope.viewer.store import sql
from stepscope.viewer.store.open import open_trace
from stepscope.viewer.store.trace import Trace
from tests import python_processes

pytestmark = pytest.mark.filterwarnings("ignore")  # torch/utils/mkldnn.py uses a deprecated function

Run = Callable[[Path], "Done"]
SMALL = 1 << 20
WINDOWS = "extern_kernels.mm", "reinterpret_tensor(%, (40, 2), (24, 1), 1)"


DEADLY = """
import ctypes
import torch

@torch.library.custom_op("deadly::read_null", mutates_args=())
def read_null(x: torch.Tensor) -> torch.Tensor:
    if x.sum() > 0:
        ctypes.string_at(0)
    return x + 1

@read_null.register_fake
def _(x):
    return torch.empty_like(x)
"""
PROGRAM = """
import torch
import deadly

function = torch.compile(lambda x: torch.ops.deadly.read_null(x.relu()) * 2)
function(-torch.ones(8))
function(torch.ones(8))
"""


class Done(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


def model(q: torch.Tensor, k: torch.Tensor, big: torch.Tensor, index: torch.Tensor) -> tuple[torch.Tensor, ...]:
    attention = torch.softmax(torch.mm(q, k) * 0.125, -1)  # overflows in float16
    product = torch.mm(big.t(), big)  # both arguments are one storage
    windows = torch.mm(big[:, 1:3], big[:, 2:4].t())  # overlap, with offsets
    return attention, torch.sort(product, dim=-1)[0], windows, big[index] + 1


def inputs(worst_index: int) -> list[torch.Tensor]:
    torch.manual_seed(0)
    q, k = torch.randn(32, 64).half() * 60, torch.randn(64, 32).half() * 60
    return [q, k, torch.randn(40, 24), torch.tensor([3, worst_index, 5])]


def record(folder: Path, level: str) -> Path:
    """Record two steps, in the second of which the indexing kernel raises an error."""
    torch._dynamo.reset()
    compiled = torch.compile(model)
    with stepscope.trace(folder, level=level) as recorder:
        compiled(*inputs(worst_index=7))
        stepscope.step()
        with pytest.raises(RuntimeError, match="out of bounds"):
            compiled(*inputs(worst_index=40))
    assert recorder.path is not None
    return recorder.path


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trace]:
    with open_trace(record(tmp_path_factory.mktemp("save"), "save")) as trace:
        yield trace


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trace]:
    with open_trace(record(tmp_path_factory.mktemp("values"), "values")) as trace:
        yield trace


def launch_of(trace: Trace, kernel: str, step: int = 0, argument: str = "%") -> int:
    """Return the only launch in a step whose kernel and argument match these LIKE patterns."""
    found = sql.rows(
        trace,
        "SELECT DISTINCT launch FROM launches JOIN sites USING (site) JOIN arguments a USING (site)"
        " WHERE kernel LIKE ? AND launches.step = ? AND a.name LIKE ?",
        [kernel, step, argument],
    )
    assert len(found) == 1, found
    return int(found[0][0])


def run_fresh(script: Path, *arguments: str) -> Done:
    """Run the script in its own process, as a user does."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("STEPSCOPE_")}
    command = [sys.executable, str(script), *arguments]
    done = python_processes.run(command, cwd=script.parent, env=environment)
    return Done(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return a function that runs a script in this process, which has already imported torch."""

    def run_here(script: Path) -> Done:
        monkeypatch.setenv("TORCHINDUCTOR_COMPILE_THREADS", "1")
        monkeypatch.setattr(sys, "argv", [str(script)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            runpy.run_path(str(script), run_name="__main__")
        assert isinstance(ended.value.code, int)
        return Done(ended.value.code, *capsys.readouterr())

    return run_here


def spec_of(script: Path) -> dict[str, Any]:
    """Return the literal that the script assigns to SPEC."""
    for node in ast.parse(script.read_text("utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "SPEC":
            return cast("dict[str, Any]", ast.literal_eval(node.value))
    raise AssertionError("no SPEC")


def table(output: str) -> dict[str, dict[str, list[str]]]:
    """Return the printed numbers by name and by row ("recorded" or "here")."""
    rows: dict[str, dict[str, list[str]]] = {}
    name = ""
    for line in output.splitlines():
        words = line.split()
        if "recorded" in words[:2] and len(words) == 12:
            name = words.pop(0)
            rows[name] = {"recorded": words[1:]}
        elif words[:1] == ["here"]:
            rows[name]["here"] = words[1:]
    return rows


@pytest.mark.slow
def test_a_saved_launch_that_makes_nan_makes_the_same_ones(saved: Trace, tmp_path: Path) -> None:
    launch = launch_of(saved, "cpp_fused%softmax%")
    assert worst_launch(saved) == launch
    out = tmp_path / "repro.py"
    write_reproducer(saved, launch, out, embed_bytes=SMALL)
    done = run_fresh(out, "--bench")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "verdict: same\n" in done.stdout
    assert "made up" not in done.stdout
    rows = table(done.stdout)
    assert len(rows) >= 2
    assert all(row["here"][:5] == row["recorded"][:5] for row in rows.values())
    eager = torch.softmax(torch.mm(*inputs(0)[:2]) * 0.125, -1)
    last = list(rows.values())[-1]["here"]
    assert int(last[1].replace(",", "")) == int(eager.isnan().sum()) > 0
    assert "bench: 50 runs, caches cleared before each" in done.stdout
    assert "GB/s" in done.stdout


def test_arguments_on_one_storage_are_on_one_storage_again(saved: Trace, tmp_path: Path, run: Run) -> None:
    launch = launch_of(saved, WINDOWS[0], argument=WINDOWS[1])
    out = tmp_path / "repro.py"
    write_reproducer(saved, launch, out, embed_bytes=SMALL)
    done = run(out)
    assert done.returncode == 0, done.stdout + done.stderr
    spec = spec_of(out)
    first, second, product = (argument["tensors"][0] for argument in spec["arguments"])
    assert (first["size"], first["stride"], first["offset"]) == ([40, 2], [24, 1], 1)
    assert (second["size"], second["stride"], second["offset"]) == ([2, 40], [1, 24], 2)
    assert first["storage"] == second["storage"] != product["storage"]
    assert spec["storages"][first["storage"]]["bytes"] == 40 * 24 * 4
    windows = table(done.stdout)["out"]["here"]
    big = inputs(0)[2]
    expected = (big[:, 1:3] @ big[:, 2:4].t()).double().norm()
    assert float(windows[-1]) == pytest.approx(float(expected), rel=1e-4)


def test_larger_tensors_lie_beside_the_script_and_are_checked(saved: Trace, tmp_path: Path, run: Run) -> None:
    out = tmp_path / "repro.py"
    written = write_reproducer(saved, launch_of(saved, "torch.ops.aten.sort%"), out, embed_bytes=100)
    (file,) = written.files
    assert file.parent == tmp_path / "repro_tensors"
    assert "SAVED = {}" in out.read_text("utf-8")
    assert "verdict: same\n" in run(out).stdout
    file.write_bytes(file.read_bytes() + b"x")
    done = run(out)
    assert done.returncode == 2
    assert "is not what was saved" in done.stderr
    assert "Traceback" not in done.stderr


def test_without_saved_tensors_statistics_are_met_and_the_script_says_so(
    measured: Trace, tmp_path: Path, run: Run
) -> None:
    out = tmp_path / "repro.py"
    write_reproducer(measured, launch_of(measured, "cpp_fused%softmax%"), out, embed_bytes=SMALL)
    done = run(out)
    assert done.returncode == 0, done.stdout + done.stderr
    text = out.read_text("utf-8")
    made_up = [line for line in done.stdout.splitlines() if line.startswith("made up: ")]
    assert made_up
    assert all(f"# {line}" in text for line in made_up)
    assert "NaN and infinities at random places from element" in done.stdout
    assert "verdict: same in what made-up arguments can show" in done.stdout
    rows = list(table(done.stdout).values())
    nan = [(row["recorded"][1] != "0", row["here"][1] != "0") for row in rows]
    assert (True, True) in nan
    assert all(before == now for before, now in nan)


def test_a_launch_that_raised_fails_the_same_way(saved: Trace, measured: Trace, tmp_path: Path, run: Run) -> None:
    for trace, start, name in ((saved, run_fresh, "saved.py"), (measured, run, "measured.py")):
        out = tmp_path / name
        write_reproducer(trace, launch_of(trace, "cpp_fused%index%", step=1), out, embed_bytes=SMALL)
        done = start(out)
        assert "in the log this launch did not return" in done.stdout
        assert "index out of bounds" in done.stdout
        assert "verdict: fails the same way" in done.stdout
        assert done.returncode == 0


@pytest.mark.slow
def test_a_launch_that_killed_the_process_kills_the_script(tmp_path: Path) -> None:
    (tmp_path / "deadly.py").write_text(DEADLY)
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [sys.executable, "-c", "from stepscope.viewer.cli import main; main()"]
    arguments = ["run", "--level", "save", "-o", "trace", "--", "program.py"]
    python_processes.run([*command, *arguments], cwd=tmp_path)
    with open_trace(tmp_path / "trace") as trace:
        launch = launch_of(trace, "torch.ops.deadly.%", step=1)
        assert worst_launch(trace) == launch
        write_reproducer(trace, launch, tmp_path / "repro.py", embed_bytes=SMALL)
    done = run_fresh(tmp_path / "repro.py", "--import", "deadly")
    assert "if it dies here, it fails the same way" in done.stdout
    assert "made up" not in done.stdout
    assert "verdict" not in done.stdout
    assert done.returncode == -signal.SIGSEGV
    done = run_fresh(tmp_path / "repro.py")
    assert done.returncode == 2
    assert "is not registered here: name its module with --import MODULE." in done.stderr


def test_other_results_are_a_difference(saved: Trace, tmp_path: Path, run: Run) -> None:
    out = tmp_path / "repro.py"
    write_reproducer(saved, launch_of(saved, WINDOWS[0], argument=WINDOWS[1]), out, embed_bytes=SMALL)
    text = out.read_text("utf-8")
    assert text.count("kernel(a[0], ") == 1
    out.write_text(text.replace("kernel(a[0], ", "kernel(a[0] * 1.5, "))
    done = run(out)
    assert done.returncode == 1
    assert "verdict: differs in out.min, out.max, out.std, out.l2" in done.stdout.replace("out.mean, ", "")


def test_a_file_that_is_there_stays(saved: Trace, tmp_path: Path) -> None:
    out = tmp_path / "repro.py"
    out.write_text("mine")
    launch = launch_of(saved, "torch.ops.aten.sort%")
    with pytest.raises(StepscopeError, match="already exists"):
        write_reproducer(saved, launch, out, embed_bytes=SMALL)
    assert out.read_text() == "mine"
    write_reproducer(saved, launch, out, embed_bytes=SMALL, force=True)
    assert "mine" not in out.read_text("utf-8")
