"""Tests `stepscope run --crash`: which runs follow, what each leaves, and that the program is not disturbed."""

from __future__ import annotations

import io
import os
import pty
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stepscope.tracer.command.crash_runs import CrashRuns, Limits
from stepscope.tracer.command.watch import descendants
from stepscope.tracer.config import TraceConfig
from stepscope.viewer.crash.crash_look import look
from stepscope.viewer.overview.summary import summary, summary_text
from stepscope.viewer.store.open import open_trace
from tests.waiting import PATIENCE_S, wait_for

pytestmark = pytest.mark.filterwarnings("ignore")
ROOT = Path(__file__).resolve().parents[1]

SEGV = "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"
CPP_STACKS = "TORCH_SHOW_CPP_STACKTRACES"
FLAGS = ["CUDA_LAUNCH_BLOCKING", "PYTORCH_NO_CUDA_MEMORY_CACHING"]


class Session:
    """The runs of one command, controlled by this process."""

    def __init__(self, folder: Path, program: str, aoti: str | None = None, **limits: Any) -> None:
        self.folder, self.said = folder / "trace", list[str]()
        config = TraceConfig(self.folder)
        self.runs = CrashRuns(["-c", program], config, Limits(**limits), look, self.said.append, aoti=aoti)
        self.exit_code = self.runs.run()

    @property
    def answer(self) -> dict[str, Any]:
        with open_trace(self.folder) as trace:
            return summary(trace)

    @property
    def folders(self) -> list[str]:
        return sorted(path.name for path in self.folder.iterdir() if path.is_dir())


@pytest.mark.slow
def test_a_program_that_does_not_die_runs_once(tmp_path: Path) -> None:
    for program, code in (("print(1)", 0), ("raise SystemExit(3)", 3)):
        session = Session(tmp_path / str(code), program)
        assert (session.exit_code, session.folders) == (code, ["run-1"])
        assert session.said[-1] == "it did not die, so nothing is run again"
        assert session.answer["findings"] == []
        (row,) = session.answer["crash_runs"]
        assert (row["ended"], row["symptom"]) == (f"exit code {code}", None)


@pytest.mark.parametrize(
    ("program", "code", "symptom", "kind", "flags"),
    [
        (SEGV, 139, "SIGSEGV", "crash", FLAGS),
        ("import os; os.abort()", 134, "SIGABRT", "crash", [*FLAGS, CPP_STACKS]),
        ("raise ValueError('bad at 0x7f12')", 1, "ValueError: bad at 0x…", "exception", [*FLAGS, CPP_STACKS]),
    ],
)
def test_a_death_that_stays_the_same(
    tmp_path: Path, program: str, code: int, symptom: str, kind: str, flags: list[str]
) -> None:
    session = Session(tmp_path, program, most_runs=2)
    assert (session.exit_code, session.folders) == (code, ["run-1", "run-2"])
    answer = session.answer
    first, second = answer["crash_runs"]
    assert [row["symptom"] for row in (first, second)] == [symptom] * 2
    assert (first["survived"], second["survived"]) == (None, True)
    assert (first["asked"], second["asked"]) == (["level launches"], [f"{flag}=1" for flag in flags])
    assert [finding["kind"] for finding in answer["findings"]] == [kind]
    assert [run["crash_run"] for run in answer["runs"]] == [1, 2]
    assert all(row["duration_ns"] > 10**6 for row in (first, second))


def test_a_flag_that_makes_the_symptom_go(tmp_path: Path) -> None:
    session = Session(tmp_path, f"import os\nif 'CUDA_LAUNCH_BLOCKING' not in os.environ: exec({SEGV!r})")
    rows = session.answer["crash_runs"]
    assert [(row["run"], row["ended"], row["survived"]) for row in rows] == [
        (1, "SIGSEGV", None),
        (2, "exit code 0", False),
        (3, "SIGSEGV", True),
    ]
    assert rows[2]["asked"] == ["AOTI_RUNTIME_CHECK_INPUTS=1"]
    assert "no launch is suspected, so no values are read" in session.said


RAISES = f"""
import os, sys
text = "sizes do not fit"
if os.environ.get({CPP_STACKS!r}):
    text += chr(10).join([
        "", "Exception raised from meta at /src/LinearAlgebra.cpp:204 (most recent call first):",
        "C++ CapturedTraceback:", "#5 c10::Error::Error(c10::SourceLocation) from ??:0",
        "#7 at::meta::structured_mm::meta(at::Tensor const&) from ??:0", "#9 at::_ops::mm::call() from ??:0",
        "#15 _PyObject_MakeTpCall from /python/call.c:214", "#16 at::later() from ??:0",
    ])
"""
STACK = ["at::meta::structured_mm::meta(at::Tensor const&) from ??:0", "at::_ops::mm::call() from ??:0"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("end", "kind"),
    [
        ("raise RuntimeError(text)", "exception"),
        ("sys.stderr.write('  what():  ' + text); sys.stderr.flush(); os.abort()", "crash"),
    ],
)
def test_where_an_exception_was_raised_in_c_plus_plus(tmp_path: Path, end: str, kind: str) -> None:
    """The second run reports it, and the only finding of all runs contains it."""
    session = Session(tmp_path, RAISES + end, most_runs=2)
    answer = session.answer
    assert [row["survived"] for row in answer["crash_runs"]] == [None, True]
    (finding,) = answer["findings"]
    assert finding["kind"] == kind
    assert finding["evidence"]["cpp_raised"] == "meta (/src/LinearAlgebra.cpp:204)"
    assert finding["evidence"]["cpp_stack"] == STACK
    with open_trace(session.folder) as trace:
        told = " ".join(summary_text(trace).split())
    assert "raised in C++: meta (/src/LinearAlgebra.cpp:204): at::meta::structured_mm" in told


def test_a_fresh_cache_of_each_run(tmp_path: Path) -> None:
    program = "import os, pathlib; pathlib.Path(os.environ['TORCHINDUCTOR_CACHE_DIR'], 'x.so').write_text('1'); 1 / 0"
    said: list[str] = []
    runs = CrashRuns(["-c", program], TraceConfig(tmp_path), Limits(most_runs=2), look, said.append, fresh_cache=True)
    assert runs.run() == 1
    kept = [result.cache.kept for result in runs.results if result.cache is not None]
    told = [text for text in said if "the cache is kept" in text]
    assert len(told) == len(set(kept)) == 2
    for folder in kept:
        assert folder is not None
        assert (folder / "x.so").exists()
        shutil.rmtree(folder)


def test_another_exception_is_another_symptom(tmp_path: Path) -> None:
    session = Session(
        tmp_path, "import os\nraise ValueError('a' if 'CUDA_LAUNCH_BLOCKING' in os.environ else 'b')", most_runs=2
    )
    assert [row["survived"] for row in session.answer["crash_runs"]] == [None, False]


@pytest.mark.slow
def test_a_run_that_takes_too_long_is_ended_with_its_children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    children, limit_s, wait = tmp_path / "children", 4.0, subprocess.Popen.wait

    def wait_once_it_has_a_child(process: subprocess.Popen[bytes], timeout: float | None = None) -> int:
        if timeout == limit_s:
            wait_for(children.exists)
            timeout = 0.1
        return wait(process, timeout)

    monkeypatch.setattr(subprocess.Popen, "wait", wait_once_it_has_a_child)
    program = (
        "import pathlib, subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"part = pathlib.Path({str(children)!r} + '.part')\n"
        f"part.write_text(str(child.pid)), part.rename({str(children)!r})\n"
        "time.sleep(600)"
    )
    session = Session(tmp_path, program, timeout_s=limit_s)
    assert (session.exit_code, session.folders) == (128 + signal.SIGTERM, ["run-1"])
    (row,), (finding,) = session.answer["crash_runs"], session.answer["findings"]
    assert (row["ended"], row["symptom"]) == ("time limit", None)
    assert (finding["kind"], finding["severity"]) == ("crash", "warning")
    assert "its time limit" in finding["title"]
    wait_for(lambda: not is_alive(int(children.read_text())))


PRINTS = """
import os, signal
level = os.environ.get("AOT_INDUCTOR_DEBUG_INTERMEDIATE_VALUE_PRINTER")
wanted = os.environ.get("AOT_INDUCTOR_FILTERED_KERNELS_TO_PRINT", "a,b,c,d,e,mm,cpp_fused_0").split(",")
BLOCK = (
    "[  {} - {} - buf0  ]:\\nNumber of elements: 128\\nDtype: float32\\nMean value: 1\\nMin value: 0\\nMax value: 7\\n"
    "Device: cpu\\nSize: [128]\\nStride: [1]\\nLayout: Strided\\nIs contiguous: 1\\nRequires grad: 0\\n"
)
LINES = {"3": "[ {}: {} ]", "2": BLOCK}
for kernel in ("a", "b", "c", "d", "e", "mm", "cpp_fused_0"):
    if level in LINES and kernel in wanted:
        print(LINES[level].format("before_launch", kernel), flush=True)
    if kernel == "cpp_fused_0":
        os.kill(os.getpid(), signal.SIGSEGV)
    if level in LINES and kernel in wanted:
        print(LINES[level].format("after_launch", kernel), flush=True)
"""
"""Program that prints like C++ code with PyTorch's debug printer."""


@pytest.mark.slow
def test_names_and_values_that_c_plus_plus_code_prints(tmp_path: Path) -> None:
    session = Session(tmp_path, PRINTS, aoti="values", most_runs=3)
    rows = session.answer["crash_runs"]
    assert [(row["kernel"], row["launch_in_step"]) for row in rows] == [
        (None, None),
        ("cpp_fused_0", 7),
        ("cpp_fused_0", 5),
    ]
    printer, names = "AOT_INDUCTOR_DEBUG_INTERMEDIATE_VALUE_PRINTER", "AOT_INDUCTOR_FILTERED_KERNELS_TO_PRINT"
    assert [next((text for text in row["asked"] if printer in text), None) for row in rows] == [
        None, f"{printer}=3", f"{printer}=2",
    ]  # fmt: skip
    assert f"{names}=cpp_fused_0,mm,e,d,c" in rows[2]["asked"]
    (finding,) = [one for one in session.answer["findings"] if one["kind"] == "crash"]
    (read,) = finding["evidence"]["arguments"]
    assert (read["argument"], read["size"], read["storage_bytes"]) == ("buf0", [128], None)
    assert "largest magnitude 7" in read["values"]
    assert finding["evidence"]["signal"] == "SIGSEGV"


def test_code_that_prints_nothing_is_told_of_once(tmp_path: Path) -> None:
    session = Session(tmp_path, SEGV, aoti="launches", most_runs=2)
    assert [text for text in session.said if "no printed launch was seen" in text] == [session.said[-1]]
    assert [row["symptom"] for row in session.answer["crash_runs"]] == ["SIGSEGV"] * 2


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_descendants_are_found() -> None:
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'input()'])"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE) as child:
        found = wait_for(lambda: descendants(child.pid))
        assert len(found) == 1
        assert set(descendants(os.getpid())) >= {child.pid, *found}
        child.communicate(b"\n")


def test_what_it_writes_and_reads_is_its_own(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Every run reads standard input from the same position, and its output is passed on byte for byte."""
    given = tmp_path / "given"
    given.write_bytes(b"skipped\nline\n")
    program = f"import os, sys; os.write(1, sys.stdin.buffer.read()); os.write(2, b'\\xff err\\n'); {SEGV}"
    with given.open("rb") as file:
        file.readline()
        os.lseek(file.fileno(), len(b"skipped\n"), os.SEEK_SET)
        kept = os.dup(0)
        try:
            os.dup2(file.fileno(), 0)
            session = Session(tmp_path, program, most_runs=2)
        finally:
            os.dup2(kept, 0)
            os.close(kept)
    out, err = capfd.readouterr()
    assert (out, err.count(" err\n")) == ("line\n" * 2, 2)
    assert session.answer["crash_runs"][0]["said"] == ["\ufffd err"]


def stepscope(*arguments: str, **options: Any) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", "from stepscope.viewer.cli import main; main()", *arguments], cwd=ROOT, **options
    )


@pytest.fixture
def terminal() -> Iterator[tuple[io.FileIO, int]]:
    ours, child = pty.openpty()
    with io.FileIO(ours) as file:
        yield file, child


@pytest.mark.slow
def test_a_terminal_stays_one(tmp_path: Path, terminal: tuple[io.FileIO, int]) -> None:
    file, child = terminal
    program = "import sys; print('tty', sys.stderr.isatty(), sys.stdout.isatty(), file=sys.stderr)"
    with stepscope(
        "run", "--crash", "-o", str(tmp_path / "t"), "--", "-c", program, stderr=child, stdout=subprocess.PIPE
    ) as run:
        os.close(child)
        text = b""
        try:
            while piece := file.read(4096):
                text += piece
        except OSError:  # raised after the last writer has closed the terminal
            pass
    assert run.returncode == 0
    assert b"tty True False\r\n" in text


def test_ctrl_c_stops_everything_and_keeps_what_is_there(tmp_path: Path) -> None:
    """Interrupt the second run, which would take ten minutes."""
    trace, begun = tmp_path / "t", tmp_path / "begun"
    program = (
        "import os, pathlib, time\n"
        f"if 'CUDA_LAUNCH_BLOCKING' in os.environ: pathlib.Path({str(begun)!r}).touch(); time.sleep(600)\n{SEGV}"
    )
    with stepscope(
        "run", "--crash", "-o", str(trace), "--", "-c", program, stderr=subprocess.PIPE, start_new_session=True
    ) as run:
        wait_for(begun.exists)
        os.killpg(run.pid, signal.SIGINT)
        errors = run.communicate(timeout=PATIENCE_S)[1]
    assert run.returncode == 139
    assert sorted(path.name for path in trace.iterdir() if path.is_dir()) == ["run-1", "run-2"]
    assert b"KeyboardInterrupt" in errors
    with open_trace(trace) as opened:
        answer = summary(opened)
    assert [finding["kind"] for finding in answer["findings"]] == ["crash"]
    assert [(row["run"], row["symptom"]) for row in answer["crash_runs"]] == [(1, "SIGSEGV"), (2, "SIGINT")]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--max-runs", "2"], "without it nothing is run again"),
        (["--crash", "--max-runs", "0"], "max-runs"),
        (["--crash", "-o", "USED"], "holds an earlier run"),
    ],
)
def test_what_cannot_be(tmp_path: Path, arguments: list[str], words: str) -> None:
    (tmp_path / "used" / "run-1").mkdir(parents=True)
    given = [str(tmp_path / "used") if part == "USED" else part for part in arguments]
    with stepscope("run", *given, "--", "-c", "print(1)", stderr=subprocess.PIPE, stdout=subprocess.PIPE) as run:
        _, errors = run.communicate(timeout=PATIENCE_S)
    assert run.returncode == 2
    assert words in errors.decode()
    assert b"Traceback" not in errors


@pytest.mark.slow
def test_the_sanitizer_is_asked_for_only_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tools = tmp_path / "tools"
    monkeypatch.setenv("PATH", str(tools))
    session = Session(tmp_path / "without", SEGV, with_sanitizer=True)
    assert "compute-sanitizer is not installed, so the program is not run under it" in session.said
    tools.mkdir()
    tool = tools / "compute-sanitizer"
    (tools / "report").write_text(
        "========= Invalid __global__ write of size 4 bytes\n=========     at add_one+0x4f0 in kernel.py:22\n"
        "=========     by thread (0,0,0) in block (8,0,0)\n=========     Access to 0x8 is out of bounds\n"
    )
    tool.write_text(f'#!/bin/sh\n/bin/cat {tools}/report > "$6"\nshift 6\nexec "$@"\n')
    tool.chmod(0o755)
    session = Session(tmp_path / "with", SEGV, with_sanitizer=True)
    last = session.answer["crash_runs"][-1]
    assert last["asked"] == ["compute-sanitizer --tool memcheck", "PYTORCH_NO_CUDA_MEMORY_CACHING=1"]
    assert last["survived"] is True
    (found,) = last["tool_errors"]
    assert found["text"] == "Invalid __global__ write of size 4 bytes"
    assert (found["kernel"], found["line"]) == ("add_one", 22)
