"""Tests the command `stepscope` as a user runs it: exit codes, messages, and the demo from end to end."""

from __future__ import annotations

import gzip
import os
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import orjson
import pytest
from torch.torch_version import TorchVersion

from stepscope.tracer.config import TraceConfig
from tests import python_processes
from tests.logs.compile_summary_logs import with_breaks
from tests.waiting import PATIENCE_S

HEALTHY = """\
import torch
torch.set_num_threads(1)
function = torch.compile(lambda x: (x @ x).relu())
for _ in range(3):
    function(torch.ones(8, 8))
"""


def stepscope(*arguments: str | Path, cwd: Path, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from stepscope.viewer.cli import main; main()", *map(str, arguments)]
    return python_processes.run(command, cwd=cwd, **options)


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    folder = tmp_path_factory.mktemp("demo")
    result = stepscope("demo", "-o", "out", cwd=folder)
    assert result.returncode == 0, result.stderr
    return folder / "out", result.stdout


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    (folder / "healthy.py").write_text(HEALTHY)
    result = stepscope("run", "--fresh-cache", "-o", "trace", "--", "healthy.py", cwd=folder)
    assert result.returncode == 0, result.stderr
    assert "read it with `stepscope summary trace` or `stepscope serve trace`\n" in result.stderr
    return folder / "trace"


@pytest.mark.slow
def test_the_demo_shows_its_run_and_says_how_to_go_on(demo: tuple[Path, str]) -> None:
    out, text = demo
    assert re.search(r"step 2: loss nan", text)
    assert "fp16 overflow in matmul (demo.py:35) becomes NaN in softmax (demo.py:36) in step 2" in text
    assert text.endswith(
        f"Open {out.name}/report.html in a browser, or read the trace with `stepscope summary {out.name}` or "
        f"`stepscope serve {out.name}`.\n"
    )
    assert out.joinpath("report.html").stat().st_size < 1_500_000


@pytest.mark.slow
def test_summary_json_has_every_key(recorded: Path) -> None:
    result = stepscope("summary", recorded, "--json", cwd=recorded.parent)
    assert result.returncode == 0, result.stderr
    answer = orjson.loads(result.stdout)
    assert answer["format"] == "stepscope-summary/1"
    keys = {"format", "runs", "counts", "ingest", "findings", "graphs", "memory", "compiles", "overhead"}
    assert keys <= answer.keys()
    assert answer["counts"]["steps"] == 3
    assert answer["counts"]["launches"] == 3 * answer["counts"]["launch_sites"]
    assert answer["runs"][0]["complete"] is True
    assert answer["findings"] == []
    assert answer["counts"]["value_rows"] is None


@pytest.mark.slow
def test_a_trace_from_standard_input_and_from_gz(recorded: Path) -> None:
    (log,) = recorded.glob("*.log")
    command = [sys.executable, "-c", "from stepscope.viewer.cli import main; main()", "summary", "-"]
    piped = subprocess.run(command, input=log.read_bytes(), capture_output=True, timeout=PATIENCE_S)
    packed = recorded.parent / "copy.log.gz"
    packed.write_bytes(gzip.compress(log.read_bytes()))
    unpacked = stepscope("summary", packed, cwd=recorded.parent)
    assert piped.stdout.decode().splitlines()[0] == unpacked.stdout.splitlines()[0]
    assert unpacked.stdout.startswith("No findings in 3 steps")


def test_check_is_zero_for_a_healthy_run(recorded: Path) -> None:
    assert stepscope("check", recorded, cwd=recorded.parent).returncode == 0


@pytest.mark.slow
def test_check_fails_on_the_kinds_it_is_told(tmp_path: Path) -> None:
    program = tmp_path / "broken.py"
    program.write_text(
        "import torch\n"
        "def backend(graph, inputs): raise RuntimeError('no')\n"
        "try: torch.compile(lambda x: x + 1, backend=backend)(torch.ones(2))\n"
        "except Exception: pass\n"
    )
    assert stepscope("run", "-o", "t", "--", "broken.py", cwd=tmp_path).returncode == 0
    failed = stepscope("check", "t", "--fail-on", "compile_failure", cwd=tmp_path)
    assert failed.returncode == 1
    assert "compile_failure" in failed.stdout
    assert stepscope("check", "t", "--fail-on", "graph_break", cwd=tmp_path).returncode == 0
    unknown = stepscope("check", "t", "--fail-on", "nonsense", cwd=tmp_path)
    assert unknown.returncode == 2
    assert "nonsense" in unknown.stderr


@pytest.mark.parametrize("command", ["summary", "check", "report", "serve"])
@pytest.mark.parametrize("case", ["missing", "empty", "folder", "picture"])
def test_bad_input_is_one_sentence(tmp_path: Path, command: str, case: str) -> None:
    path = tmp_path / case
    if case == "folder":
        path.mkdir()
    elif case != "missing":
        path.write_bytes(b"" if case == "empty" else b"\x89PNG\r\n\x1a\n\x00\x00")
    result = stepscope(command, path, cwd=tmp_path)
    assert result.returncode == 2
    assert result.stderr.startswith("stepscope: ")
    assert result.stderr.count("\n") == 1
    assert case in result.stderr
    assert "Traceback" not in result.stderr


def test_the_programs_own_exit_code_comes_back(tmp_path: Path) -> None:
    assert stepscope("run", "--", "-c", "raise SystemExit(5)", cwd=tmp_path).returncode == 5
    nothing = stepscope("run", "--", "-c", "print('hello')", cwd=tmp_path)
    assert nothing.stdout == "hello\n"
    missing = stepscope("run", "--", "no-such-program", cwd=tmp_path)
    assert missing.returncode == 2
    assert "no-such-program" in missing.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "why"),
    [
        ("import torch; raise SystemExit(3)", "the program ended with code 3 before anything was compiled"),
        ("import os, torch; os.kill(os.getpid(), 9)", "SIGKILL ended the program before anything was compiled"),
        (
            "import torch",
            "the program compiled nothing: no call of torch.compile was seen",
        ),
        ("", "the program did not import torch, or stepscope is not installed for its Python"),
        (
            "raise SystemExit(1)",
            "the program ended with code 1 before it had imported torch, or stepscope is not installed for its Python",
        ),
    ],
)
def test_a_run_without_a_log_says_why(tmp_path: Path, program: str, why: str) -> None:
    said = stepscope("run", "--", "-c", program, cwd=tmp_path, alone=True)
    assert said.stderr.splitlines()[-1] == f"stepscope: no log was written: {why}"
    environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    said = stepscope("run", "--", "-c", program, cwd=tmp_path, env=environment)
    assert said.stderr.splitlines()[-1].endswith(
        "TORCH_DEVICE_BACKEND_AUTOLOAD=0 keeps `import torch` from starting it"
    )


@pytest.mark.slow
def test_a_program_that_calls_no_compiled_code(tmp_path: Path) -> None:
    code = (
        "import torch\nclass Net(torch.nn.Linear):\n    def predict(self, x): return self(x)\n"
        "torch.compile(Net(2, 2), backend='eager').predict(torch.ones(2))"
    )
    said = stepscope("run", "--", "-c", code, cwd=tmp_path, alone=True)
    assert "the program called torch.compile, but no code that it compiles. Methods of" in said.stderr
    environment = {**os.environ, "TORCH_COMPILE_DISABLE": "1"}
    said = stepscope("run", "--", "-c", code, cwd=tmp_path, alone=True, env=environment)
    assert said.stderr.splitlines()[-1].endswith(
        "no log was written: TORCH_COMPILE_DISABLE=1 switches torch.compile off"
    )


@pytest.mark.slow
def test_a_recorder_that_could_not_start_is_the_reason(tmp_path: Path) -> None:
    code = (
        "import torch, stepscope.tracer.recorder as recorder\nrecorder.Recorder.start = None\n"
        "torch.compile(torch.nn.Linear(2, 2), backend='eager')(torch.ones(2))"
    )
    *_, said, last = stepscope("run", "--", "-c", code, cwd=tmp_path, alone=True).stderr.splitlines()
    assert said.startswith("stepscope: nothing is recorded: ")
    assert last.endswith("no log was written: the recorder could not start, for the reason that was said above")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "It loaded a package of AOTInductor, whose launches are recorded with --aoti launches if"),
        (["--aoti", "launches"], "It loaded a package of AOTInductor, which prints no launches"),
    ],
)
def test_a_program_that_loads_a_package(tmp_path: Path, options: list[str], said: str) -> None:
    """PyTorch imports what loads a package only then; the file need not exist."""
    code = (
        "import torch\n@torch.compiler.disable\ndef f(): return torch.ones(2)\nf()\n"
        "try: torch._inductor.aoti_load_package('absent.pt2')\nexcept Exception: pass"
    )
    done = stepscope("run", *options, "--", "-c", code, cwd=tmp_path, alone=True)
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"stepscope: no log was written: the program compiled nothing. {said}")
    assert "AOTI_RUNTIME_CHECK_INPUTS=1" in last


@pytest.mark.slow
def test_torch_compiles_containers_by_its_function_alone(tmp_path: Path) -> None:
    """What a run without a log says about them."""
    told = "import torch; module = torch.nn.Sequential(torch.nn.ReLU()); module.compile(backend='eager')"
    said = stepscope("run", "--", "-c", f"{told}; module(torch.ones(2))", cwd=tmp_path, alone=True)
    if "no log was written" in said.stderr or TorchVersion(version("torch")) < "2.14":  # torch 2.15 compiles it
        assert "no log was written: the program called torch.compile, but no code that it compiles. " in said.stderr
    said = stepscope("run", "--", "-c", f"{told}; torch.compile(module, backend='eager')(torch.ones(2))", cwd=tmp_path)
    assert "no log was written" not in said.stderr


@pytest.mark.slow
def test_recording_by_the_variable_alone(tmp_path: Path) -> None:
    environment = {**os.environ, "STEPSCOPE_TRACE": str(tmp_path / "out")}
    code = "import torch; torch.compile(lambda x: x.sin(), backend='aot_eager')(torch.ones(2))"
    subprocess.run([sys.executable, "-c", code], env=environment, check=True, timeout=PATIENCE_S)
    assert len(list((tmp_path / "out").glob("stepscope_trace_rank_0_*.log"))) == 1
    silent = tmp_path / "silent"
    environment["STEPSCOPE_TRACE"] = str(silent)
    python_processes.run([sys.executable, "-c", "import torch; torch.ones(2) + 1"], env=environment, check=True)
    assert not silent.exists()


def test_a_setting_that_cannot_be_is_said_and_the_program_runs(tmp_path: Path) -> None:
    environment = {**os.environ, "STEPSCOPE_TRACE": str(tmp_path), "STEPSCOPE_LEVEL": "loud"}
    code = "import torch; print(torch.compile(lambda x: x + 1, backend='aot_eager')(torch.ones(1)).item())"
    result = python_processes.run([sys.executable, "-c", code], env=environment)
    assert result.stdout == "2.0\n"
    assert result.stderr.count("stepscope:") == 1
    assert "loud" in result.stderr


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--level", "loud"),
        ("--steps", "5:3"),
        ("--every", "two"),
        ("--max-bytes-per-tensor", "4Q"),
        ("--save-quota", "x"),
    ],
)
def test_a_bad_setting_is_one_sentence_that_names_its_option(tmp_path: Path, option: str, value: str) -> None:
    result = stepscope("run", option, value, "--", "-c", "print('ran')", cwd=tmp_path)
    assert result.returncode == 2
    assert result.stderr.startswith(f"stepscope: {option} is {value!r}")
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""


def test_the_options_reach_the_program(tmp_path: Path) -> None:
    program = "from stepscope.tracer.config import from_environment; print(from_environment())"
    options = [
        "--level",
        "save",
        "--kernels",
        "a*,b",
        "--args",
        "out",
        "--steps",
        "3:5",
        "--every",
        "2",
        "--verify-before",
    ]
    options += ["--max-bytes-per-tensor", "64MiB", "--save-quota", "5M", "--no-provenance", "-o", str(tmp_path)]
    result = stepscope("run", *options, "--", "-c", program, cwd=tmp_path)
    wanted = TraceConfig(tmp_path, "save", False, ("a*", "b"), ("out",), (3, 5), 2, 64 << 20, True, 5_000_000)
    assert result.stdout == f"{wanted}\n"


@pytest.mark.slow
def test_tensors_are_saved_listed_and_loaded(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(HEALTHY)
    options = ["--level", "save", "--steps", "1", "--fresh-cache", "-o", "t"]
    recorded = stepscope("run", *options, "--", "program.py", cwd=tmp_path)
    assert recorded.returncode == 0, recorded.stderr
    listed = stepscope("tensor", "t", cwd=tmp_path)
    rows = [line.split() for line in listed.stdout.splitlines()[1:]]
    assert rows, listed.stderr
    assert {row[1] for row in rows} == {"1"}
    assert all(row[-1] == "present" for row in rows)
    last = rows[-1][0]
    assert ": present" in stepscope("tensor", "t", last, cwd=tmp_path).stdout
    copied = stepscope("tensor", "t", last, "-o", "x.pt", cwd=tmp_path)
    assert copied.returncode == 0, copied.stderr
    load = "import torch; print(torch.load('x.pt', weights_only=True).tolist() == [[8.0] * 8] * 8)"
    loaded = python_processes.run([sys.executable, "-c", load], cwd=tmp_path)
    assert loaded.stdout == "True\n"
    again = stepscope("tensor", "t", last, "-o", "x.pt", cwd=tmp_path)
    assert (again.returncode, again.stderr.count("\n")) == (2, 1)
    assert stepscope("tensor", "t", last, "-o", "x.pt", "--force", cwd=tmp_path).returncode == 0
    assert stepscope("tensor", "t", "999", cwd=tmp_path).returncode == 2


def test_a_table_without_rows_names_those_that_have_some(tmp_path: Path) -> None:
    log = with_breaks().write(tmp_path / "plain.log")
    result = stepscope("export", "--to", "csv", log, "-o", "storages.csv", cwd=tmp_path)
    assert result.returncode == 0
    assert "the table storages has no rows in this trace; --table takes: " in result.stderr
    assert "records" in result.stderr
    assert "launches" not in result.stderr
