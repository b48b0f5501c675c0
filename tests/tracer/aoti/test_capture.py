"""From printed text to what the summary says; `stepscope import-aoti` and `stepscope run --aoti` without a compile."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from stepscope.tracer.aoti import live
from stepscope.tracer.aoti.capture import Capture, import_file, import_text
from stepscope.tracer.aoti.live import LiveCapture, about_kernels, about_other_filters, environment
from stepscope.tracer.aoti.printed_log import PrintedLog, run_record
from stepscope.tracer.aoti.profiler_times import durations
from stepscope.tracer.config import TraceConfig
from stepscope.tracer.log.writer import LogWriter
from stepscope.viewer.overview.summary import summary
from stepscope.viewer.store import sql
from stepscope.viewer.store.open import open_trace
from tests.tracer.aoti.test_printed_launches import SITES, TEXTS
from tests.waiting import PATIENCE_S, wait_for

ROOT = Path(__file__).parents[3]
STEPSCOPE = [sys.executable, "-m", "stepscope"]


def block(moment: str, kernel: str, argument: str, low: str, mean: str, high: str, values: str = "") -> str:
    numel = len(values.split()) if values else 4096
    start = f"[  {moment} - {kernel} - {argument}  ]:\n" if kernel else f"[  {moment} - {argument}  ]:\n"
    shown = f"{values}\n[ CPUFloatType{{{numel}}} ]\n" if values else ""
    return (
        f"{start}{shown}Number of elements: {numel}\nDtype: float32\nMean value: {mean}\nMin value: {low}\n"
        f"Max value: {high}\nDevice: cpu\nSize: [{numel}]\nStride: [1]\nLayout: Strided\nIs contiguous: 1\n"
        "Requires grad: 0\n\n"
    )


def launch(kernel: str, *arguments: tuple[str, str, str]) -> str:
    """Arguments: name, minimum before, minimum after."""

    def of(moment: str, which: int) -> str:
        return "".join(block(f"{moment}_launch", kernel, one[0], one[which], one[which], "2") for one in arguments)

    return of("before", 1) + of("after", 2)


OVERFLOW = (
    block("aoti_model_inputs", "", "arg0_1", "-1", "0.1", "1")
    + launch("aoti_torch_cpu_mm_out", ("buf0", "-nan", "-3"), ("arg0_1", "-1", "-1"))
    + launch("cpp_fused_log_0", ("buf0", "-3", "-3"), ("buf1", "nan", "nan"))
    + launch("cpp_fused_exp_1", ("buf1", "nan", "nan"), ("buf2", "0", "nan"))
)
"""A log of negative numbers; what `buf1` and `buf0` held before anybody wrote them is NaN as well."""


def imported(tmp_path: Path, text: str, *more: str) -> dict[str, Any]:
    source = tmp_path / "printed.txt"
    source.write_text(text)
    log, *_ = import_file(str(source), tmp_path / "trace", Path(more[0]) if more else None)
    with open_trace([str(log)]) as trace:
        found = summary(trace)
        found["rows"] = sql.rows(trace, "SELECT moment, argument, nan, zero, std, at_least, min FROM value_rows")
        found["times"] = sql.rows(trace, "SELECT duration_ns, returned, device_duration_ns FROM launches")
    return found


def kinds(found: dict[str, Any]) -> set[str]:
    return {one["kind"] for one in found["findings"]} - {"not_recorded"}


def test_a_healthy_run_has_no_finding_and_every_launch(tmp_path: Path) -> None:
    found = imported(tmp_path, (TEXTS / "values.txt").read_text() * 3)
    assert kinds(found) == set()
    assert found["counts"]["launches"] == 3 * len(SITES)
    assert (found["counts"]["graphs"], found["counts"]["launch_sites"]) == (1, len(SITES))
    assert {tuple(row) for row in found["times"]} == {(None, True, None)}
    assert found["ingest"]["problems"] == []
    assert all(zero is None and std is None and not least for _, _, _, zero, std, least, _ in found["rows"])
    assert all(nan == 0 for _, _, nan, *_ in found["rows"])


def test_a_nan_is_told_of_where_it_was_made(tmp_path: Path) -> None:
    found = imported(tmp_path, OVERFLOW)
    (finding,) = [one for one in found["findings"] if one["kind"] == "nonfinite"]
    assert (finding["kernel"], finding["argument"], finding["severity"]) == ("cpp_fused_log_0", "buf1", "critical")
    assert finding["evidence"]["out"] == ["buf1 NaN in at least 1 of 4,096 elements"]
    assert finding["title"].startswith("NaN is first seen in")  # a weight may hold it, which the printer does not print
    assert "uninitialised_read" not in kinds(found)


@pytest.mark.slow
def test_a_nan_that_came_in_is_one(tmp_path: Path) -> None:
    came = OVERFLOW.replace("Min value: -1\nMax value: 1", "Min value: nan\nMax value: nan").replace(
        "arg0_1  ]:\nNumber of elements: 4096\nDtype: float32\nMean value: -1\nMin value: -1",
        "arg0_1  ]:\nNumber of elements: 4096\nDtype: float32\nMean value: nan\nMin value: nan",
    )
    findings = [one for one in imported(tmp_path, came)["findings"] if one["kind"] == "nonfinite"]
    assert "enters with" in findings[0]["title"] and "arg0_1" in findings[0]["title"]  # noqa: PT018


@pytest.mark.slow
def test_a_nan_in_an_input_that_no_launch_names_came_in(tmp_path: Path) -> None:
    """Views are not printed, and memory that nobody wrote may hold NaN as well."""
    given = block("aoti_model_inputs", "", "arg1_1", "nan", "nan", "nan")
    first = launch("aoti_torch_cpu_mm_out", ("buf0", "-nan", "nan"))
    second = launch("aoti_torch_cpu_mm_out", ("buf1", "-nan", "nan"))
    text = (given + first + second).replace("Max value: 2", "Max value: nan")
    found = imported(tmp_path, text * 2)
    (finding,) = [one for one in found["findings"] if one["kind"] == "nonfinite"]
    assert finding["title"] == (
        "NaN enters with the input or parameter arg1_1 of graph 0 inference in steps 0 and 1: no recorded launch"
        " uses it"
    )
    assert (finding["evidence"]["origin"], finding["argument"], finding["kernel"]) == ("came in", "arg1_1", None)
    assert finding["evidence"]["in"] == ["arg1_1 NaN in at least 1 of 4,096 elements"]
    assert found["ingest"]["problems"] == []


@pytest.mark.slow
def test_a_buffer_in_the_memory_of_one_with_nan_has_it_from_there(tmp_path: Path) -> None:
    """A kernel that works in place: its buffer has another name, and the statistics of what it reads."""
    text = OVERFLOW + launch("cpp_fused_sin_2", ("buf3", "nan", "nan"))
    found = imported(tmp_path, text)
    assert [one["kernel"] for one in found["findings"] if one["kind"] == "nonfinite"] == ["cpp_fused_log_0"]


def test_a_finite_input_that_no_launch_names_is_a_value_of_its_call(tmp_path: Path) -> None:
    given = block("aoti_model_inputs", "", "arg1_1", "-1", "0.1", "1")
    (tmp_path / "printed.txt").write_text((given + launch("aoti_torch_cpu_mm_out", ("buf0", "0", "1"))) * 2)
    log, *_ = import_file(str(tmp_path / "printed.txt"), tmp_path / "trace")
    with open_trace([str(log)]) as trace:
        rows = sql.rows(trace, "SELECT call, name, argument, moment, min, max, numel FROM input_rows ORDER BY value")
    assert rows == [(call, "arg1_1", -1, "before", -1.0, 1.0, 4096) for call in (0, 1)]


@pytest.mark.slow
def test_what_a_filter_leaves_of_a_nan_is_told(tmp_path: Path) -> None:
    """The text tells more than what is recorded of it: a kernel that only passes the NaN on."""
    run = run_record(["x"], 1, "values")
    capture = Capture(LogWriter(tmp_path, None), run, PrintedLog(0, lambda kernel: kernel == "cpp_fused_exp_1"))
    capture.feed(OVERFLOW.encode())
    capture.end()
    with open_trace([str(capture.writer.path)]) as trace:
        (finding,) = [one for one in summary(trace)["findings"] if one["kind"] == "nonfinite"]
    assert finding["title"] == "NaN is first seen in input buf1 of exp (cpp_fused_exp_1) in step 0"


@pytest.mark.slow
def test_small_tensors_are_counted(tmp_path: Path) -> None:
    text = block("before_launch", "cpp_fused_0", "buf0", "0", "0", "1", " 0  1  0") + block(
        "after_launch", "cpp_fused_0", "buf0", "nan", "nan", "nan", " nan  -inf  nan"
    )
    row = imported(tmp_path, text)["rows"][-1]
    assert (row[0], row[2], row[5], row[6]) == ("after", 2, False, None)


@pytest.mark.slow
def test_text_that_ends_in_a_launch_names_it(tmp_path: Path) -> None:
    cut = OVERFLOW[: OVERFLOW.index("[  after_launch - cpp_fused_log_0")]
    found = imported(tmp_path, cut)
    (finding,) = [one for one in found["findings"] if one["kind"] == "crash"]
    assert finding["kernel"] == "cpp_fused_log_0"
    assert [returned for _, returned, _ in found["times"]] == [True, False]


@pytest.mark.slow
def test_what_was_printed_has_no_code_to_run_again(tmp_path: Path) -> None:
    (tmp_path / "printed.txt").write_text(OVERFLOW)
    log, *_ = import_file(str(tmp_path / "printed.txt"), tmp_path / "trace")
    done = stepscope("repro", str(log), "-o", str(tmp_path / "repro.py"))
    said = b"stepscope: The log does not contain the generated code of launch 1.\n"
    assert (done.returncode, done.stderr) == (2, said)
    assert not (tmp_path / "repro.py").exists()


def test_durations_from_a_profiler(tmp_path: Path) -> None:
    names = ["aoti_torch_cpu_mm_out", "cpp_fused_log_0", "cpp_fused_exp_1"]
    events = [
        {"ph": "X", "cat": "cpu_op", "name": name, "ts": 10.0 * n, "dur": n + 1.5} for n, name in enumerate(names * 2)
    ]
    events.append({"ph": "X", "cat": "cpu_op", "name": "cpp_fused_exp_1", "ts": 1e6, "dur": 1})
    profile = tmp_path / "profile.json"
    profile.write_text(json.dumps({"traceEvents": [*reversed(events), {"ph": "i"}, 3]}))
    found = imported(tmp_path, OVERFLOW * 2, str(profile))
    assert [device for _, _, device in found["times"]] == [1500, 2500, None, 4500, 5500, None]
    assert {"what": "durations of the launches of cpp_fused_exp_1", "why": "the profile has 3 of them, the text 2"} in [
        {"what": one["what"], "why": one["why"]} for one in found["ingest"]["not_recorded"]
    ]


def test_a_duration_that_no_kernel_has_is_passed_over(tmp_path: Path) -> None:
    event = '{"ph": "X", "cat": "kernel", "name": "k", "ts": 1, "dur": %s}'
    profile = tmp_path / "profile.json"
    profile.write_text(f'{{"traceEvents": [{event % "1e308"}, {event % "2"}]}}')
    assert durations(profile) == {"k": [2000]}


def test_nothing_printed_is_one_sentence(tmp_path: Path) -> None:
    source = tmp_path / "own.txt"
    source.write_text("hello\n")
    done = stepscope("import-aoti", str(source), "-o", str(tmp_path / "trace"))
    assert done.returncode == 2
    assert done.stderr.count(b"\n") == 1
    assert b"no launch in it that PyTorch's C++ debug printer printed" in done.stderr
    assert not (tmp_path / "trace").exists()


def stepscope(*arguments: str, **options: Any) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [*STEPSCOPE, *arguments], capture_output=True, check=False, timeout=PATIENCE_S,
        env={**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}, **options,
    )  # fmt: skip


def logs(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.log"))


PRINTS = """
import os, signal, sys
text = open(sys.argv[1], "rb").read()
for n in range(int(sys.argv[2])):
    os.write(1, b"own line %d\\n" % n + text)
os.write(1, b"the end")
if sys.argv[3:]:
    os.kill(os.getpid(), int(sys.argv[3]))
sys.exit(7)
"""


@pytest.mark.slow
def test_a_program_that_prints_fast_loses_nothing(tmp_path: Path) -> None:
    (tmp_path / "text").write_text(OVERFLOW)
    times = 3000
    done = stepscope("run", "--aoti", "values", "-o", str(tmp_path / "t"), "--", sys.executable, "-c", PRINTS,
                     str(tmp_path / "text"), str(times))  # fmt: skip
    assert done.returncode == 7
    own = "".join(f"own line {n}\n" for n in range(times)) + "the end"
    assert done.stdout == own.encode()
    (log,) = logs(tmp_path / "t")
    with open_trace([str(log)]) as trace:
        found = summary(trace)
    assert found["counts"]["launches"] == 3 * times
    assert found["runs"][0]["complete"]


def print_to(capture: LiveCapture, text: str, times: int) -> None:
    capture.began(os.getpid())
    for _ in range(times):
        capture.take(text.encode())
    capture.finish(0, timed_out=False)


@pytest.mark.slow
def test_calls_whose_lines_are_read_at_once_are_steps_whose_time_is_unknown(tmp_path: Path) -> None:
    print_to(LiveCapture(TraceConfig(directory=tmp_path), "values", ["x"]), OVERFLOW * 3, 1)
    with open_trace([str(one) for one in logs(tmp_path)]) as trace:
        found = summary(trace)
    steps = [(step["kind"], step["by"], step["duration_ns"]) for step in found["steps"]["rows"]]
    assert steps == [("inference", "call", None)] * 3
    assert found["overhead"]["hook_ns"] is None


def test_a_program_waits_where_it_prints_faster_than_that_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    capture = LiveCapture(TraceConfig(directory=tmp_path), "values", ["x"])
    ahead = []
    feed = Capture.feed

    def slow(self: Capture, data: bytes, at_ns: int | None = None) -> None:
        time.sleep(0.001)
        ahead.append(len(capture._pieces))
        feed(self, data, at_ns)

    monkeypatch.setattr(live, "MOST_BYTES", 3 * len(OVERFLOW))
    monkeypatch.setattr(Capture, "feed", slow)
    print_to(capture, OVERFLOW, 50)
    assert capture.launches == 3 * 50
    assert max(ahead) <= 4


def test_a_program_does_not_wait_for_a_reader_that_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(self: Capture, data: bytes, at_ns: int | None = None) -> None:
        raise RuntimeError("of a reader")

    monkeypatch.setattr(live, "MOST_BYTES", len(OVERFLOW))
    monkeypatch.setattr(Capture, "feed", fails)
    print_to(LiveCapture(TraceConfig(directory=tmp_path), "values", ["x"]), OVERFLOW, 50)
    assert capsys.readouterr().err.count("what it prints is not read any more") == 1


def test_output_that_is_not_to_be_waited_for_is_waited_for(tmp_path: Path) -> None:
    """As of a pipe that somebody else's program, which shares it, has made so."""
    program = "import os; os.write(2, b'x' * (1 << 20))"
    imports = "import os, sys; from stepscope.tracer.command.watch import watch"
    script = f"{imports}; watch(sys.argv[1:], os.environ, keep_tail=True)"
    command = [sys.executable, "-c", script, sys.executable, "-c", program]
    ours, theirs = os.pipe()
    os.set_blocking(theirs, False)
    with subprocess.Popen(command, stderr=theirs) as child, os.fdopen(ours, "rb") as output:
        wait_for(lambda: not select.select([], [theirs], [], 0)[1])  # nothing more fits in
        os.close(theirs)
        assert len(output.read()) == 1 << 20
    assert child.returncode == 0


@pytest.mark.slow
def test_a_signal_is_passed_on_and_the_log_has_no_end(tmp_path: Path) -> None:
    cut = OVERFLOW[: OVERFLOW.index("[  after_launch - cpp_fused_log_0")]
    (tmp_path / "text").write_text(cut)
    done = stepscope("run", "--aoti", "values", "-o", str(tmp_path / "t"), "--", sys.executable, "-c", PRINTS,
                     str(tmp_path / "text"), "1", str(int(signal.SIGSEGV)))  # fmt: skip
    assert done.returncode == 128 + signal.SIGSEGV
    with open_trace([str(one) for one in logs(tmp_path / "t")]) as trace:
        found = summary(trace)
    crash = next(one for one in found["findings"] if one["kind"] == "crash")
    assert crash["kernel"] == "cpp_fused_log_0"


def test_a_reader_that_goes_away_ends_the_program(tmp_path: Path) -> None:
    endless = "import os\nwhile True: os.write(1, b'x' * 4096 + b'\\n')"
    command = [*STEPSCOPE, "run", "--aoti", "launches", "-o", str(tmp_path), "--", sys.executable, "-c", endless]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.read(100)
        child.stdout.close()
        assert child.wait(PATIENCE_S) != 0


def test_a_terminal_stays_one(tmp_path: Path) -> None:
    pty = pytest.importorskip("pty")
    ours, theirs = pty.openpty()
    program = "import os, sys; print(os.isatty(1), os.get_terminal_size(1).columns > 0 or True)"
    command = [*STEPSCOPE, "run", "--aoti", "launches", "-o", str(tmp_path), "--", sys.executable, "-c", program]
    done = subprocess.run(command, stdout=theirs, stderr=subprocess.DEVNULL, check=False, timeout=PATIENCE_S)
    assert (done.returncode, os.read(ours, 100)) == (0, b"True True\r\n")


def test_what_the_printer_is_told() -> None:
    printer, names = "AOT_INDUCTOR_DEBUG_INTERMEDIATE_VALUE_PRINTER", "AOT_INDUCTOR_FILTERED_KERNELS_TO_PRINT"
    assert [environment(level, ())[printer] for level in ("launches", "values", "save")] == ["3", "2", "1"]
    assert environment("values", ("cpp_a", "at::b"))[names] == "cpp_a,at::b"
    assert names not in environment("values", ("cpp_*", "b"))
    assert names not in environment("save", ("b",))
    assert about_kernels("values", ("cpp_a",)) is None
    assert about_kernels("values", ()) is None
    assert "wildcards" in (about_kernels("values", ("cpp_*",)) or "")
    assert "every kernel" in (about_kernels("launches", ("cpp_a",)) or "")
    assert about_other_filters(TraceConfig(Path("x"), kernels=("cpp_a",))) is None
    narrowed = TraceConfig(Path("x"), args=("buf*",), every=2, elements=3)
    assert (about_other_filters(narrowed) or "").endswith(" without --args, --every, --elements.")


@pytest.mark.slow
def test_import_never_fails_on_odd_text(tmp_path: Path) -> None:
    data = b"".join((TEXTS / f"{name}.txt").read_bytes() for name in ("values", "saved", "launches", "dtypes"))
    counts: Counter[bool] = Counter()
    for cut in range(0, len(data), 997):
        bad = data[:cut] + b"\xff\x00[  before_launch - " + data[cut + 400 :][::1] + data[cut : cut + 400].upper()
        capture = import_text([bad], tmp_path / "t", "x")
        counts[capture.writer.path is not None] += 1
    assert counts == {True: len(range(0, len(data), 997))}
    with open_trace([str(logs(tmp_path / "t")[0])]) as trace:
        assert not summary(trace)["ingest"]["problems"]
