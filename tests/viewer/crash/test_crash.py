"""The verdict of a process that died: how, at which launch, with what in its hands."""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stepscope.tracer.schema.graphs import LaunchSite
from stepscope.tracer.schema.launches import Calls, Launches, TensorMeta, Tensors
from stepscope.tracer.schema.process_ends import CrashRun, End, Frame, ProcessEnd, UncaughtException
from stepscope.tracer.schema.steps import Steps
from stepscope.viewer.findings import all_findings
from stepscope.viewer.findings.crash.launch_deaths import launch_deaths
from stepscope.viewer.overview.queries.runs import list_runs
from stepscope.viewer.overview.rows import Finding
from stepscope.viewer.overview.summary import summary
from stepscope.viewer.steps.page import launch_page_of
from stepscope.viewer.store.open import open_trace
from stepscope.viewer.store.trace import Trace
from tests.logs.synthetic import MONOTONIC_NS, LogBuilder, argument, calls, compile_records, graph, recorded, run
from tests.logs.unpacking import data_of, whole_report

PID = 2**22 + 5
START_NS = MONOTONIC_NS + 3_000_000
CUDA = "torch.AcceleratorError"
ILLEGAL = "CUDA error: an illegal memory access was encountered"
TRITON = """# AOT ID: ['0_forward']
import torch

triton_made = async_compile.triton('triton_made', \'\'\'
@triton.jit
def triton_made(in_ptr0, out_ptr0, xnumel, XBLOCK : tl.constexpr):
    xnumel = 256
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:]
    xmask = xindex < xnumel
    x0 = xindex
    tmp0 = tl.load(in_ptr0 + (x0), xmask)
    tl.store(out_ptr0 + (x0), tmp0, xmask)
\'\'\', device_str='cuda')

triton_leaves = async_compile.triton('triton_leaves', \'\'\'
@triton.jit
def triton_leaves(in_ptr0, out_ptr0, xnumel, XBLOCK : tl.constexpr):
    xnumel = 256
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:]
    xmask = xindex < xnumel
    x0 = (xindex % 16)
    x1 = xindex // 16
    tmp0 = tl.load(in_ptr0 + (x0 + 16*x1), xmask)
    tl.store(out_ptr0 + (x0 + 32*x1), tmp0, xmask)
\'\'\', device_str='cuda')

def call(args):
    arg0_1, = args
    buf0 = empty_strided_cuda((16, 16), (16, 1), torch.float32)
    triton_made.run(arg0_1, buf0, 256, stream=stream0)
    buf1 = empty_strided_cuda((16, 16), (16, 1), torch.float32)
    triton_leaves.run(buf0, buf1, 256, stream=stream0)
    triton_made.run(buf1, buf0, 256, stream=stream0)
    return (buf0, )
"""


def ring(blocks: Sequence[Sequence[int]], streams: Sequence[tuple[int, int, int]] = (), pid: int = PID) -> bytes:
    """A launch ring, word by word as its module describes it. Streams: (handle, call, position of its mark)."""
    used = sum(len(block) for block in blocks)
    header = [0] * 512
    header[0], header[1], header[2] = int.from_bytes(b"SSRING01", "little"), pid, 8 * used
    header[5] = len(streams)
    marks = [0] * 2048
    for number, (handle, call, position) in enumerate(streams):
        header[16 + 2 * number : 18 + 2 * number] = [0, handle]
        marks[number] = call << 24 | position
    words = [*header, *marks, *(word for block in blocks for word in block)]
    return struct.pack(f"<{len(words)}q", *words)


def ring_call(
    call: int, step: int, launches: Sequence[tuple[int, int, int]], *, ended: int = 0, thread: int = 1, stream: int = -1
) -> list[int]:
    """A call of graph 0 as a block of rows: (site, start, end; -1: it did not return)."""
    words = [1, call, 0, 0, step, thread, -1, START_NS, ended, 0, 1, 0, len(launches), stream, -1]
    block = [*words, *(value for launch in launches for value in launch)]
    return [len(block) + 1, *block]


def process_end(**changes: Any) -> ProcessEnd:
    return replace(ProcessEnd(PID, None, 11, False, 3_000_000_000), **changes)


def crash_run(number: int, **changes: Any) -> CrashRun:
    return replace(CrashRun(number, "as it is", {}, "launches", []), **changes)


@pytest.fixture
def trace_of(tmp_path: Path) -> Iterator[Any]:
    traces: list[Trace] = []

    def open_it(log: LogBuilder, ring_bytes: bytes | None = None) -> Trace:
        path = log.write(tmp_path / f"stepscope_trace_rank_0_{PID}_{len(traces)}.log")
        if ring_bytes is not None:
            path.with_name(path.name + ".ring").write_bytes(ring_bytes)
        traces.append(open_trace(path))
        return traces[-1]

    yield open_it
    for trace in traces:
        trace.close()


def only(trace: Trace, kind: str = "crash") -> Finding:
    (finding,) = [one for one in all_findings(trace) if one.kind == kind]
    return finding


IN_STEP_THREE = ring_call(30, 3, [(0, START_NS + 100, START_NS + 200), (1, START_NS + 300, -1)])


def test_the_launch_that_the_ring_names(trace_of: Any) -> None:
    log = recorded(end=False, pid=PID).record(process_end())
    finding = only(trace_of(log, ring([IN_STEP_THREE])))
    assert finding.title == f"Process {PID} was killed by SIGSEGV in launch 17 of step 3, cpp_fused_relu_0"
    assert (finding.severity, finding.step, finding.kernel) == ("critical", 3, "cpp_fused_relu_0")
    evidence = finding.evidence
    assert (evidence["signal"], evidence["symptom"], evidence["has_ring"]) == ("SIGSEGV", "SIGSEGV", True)
    assert [(row["launch_in_step"], row["kernel"]) for row in evidence["ran_before"][:2]] == [
        (1, "extern_kernels.mm"),
        (4, "cpp_fused_relu_0"),
    ]
    assert finding.source is not None
    assert finding.source.code == "y = (x @ w).relu()"
    (inout,) = evidence["arguments"]
    assert (inout["buffer"], inout["written_by_launch_in_step"]) == ("buf1", 1)


def test_a_process_that_died_between_launches(trace_of: Any) -> None:
    block = ring_call(30, 3, [(0, START_NS + 100, START_NS + 200)])
    finding = only(trace_of(recorded(end=False, pid=PID), ring([block])))
    assert finding.title == f"Process {PID} died after launch 16 of step 3, extern_kernels.mm"
    assert finding.evidence["launch_returned"] is True
    no_launch_is_blamed(finding, "extern_kernels.mm")


def no_launch_is_blamed(finding: Finding, last: str) -> None:
    assert (finding.launch, finding.kernel, finding.source, finding.evidence["arguments"]) == (None, None, None, [])
    assert finding.evidence["ran_before"][0]["kernel"] == last


def test_a_process_that_died_between_steps(trace_of: Any) -> None:
    trace = trace_of(recorded(end=False, pid=PID).record(process_end(signal=9)), ring([]))
    finding = only(trace)
    assert finding.title == f"Process {PID} was killed by SIGKILL after step 2, outside any launch"
    no_launch_is_blamed(finding, "cpp_fused_relu_0")
    assert launch_deaths(trace) == {}
    (row,) = summary(trace)["findings"]
    assert row["launch"] is None


@pytest.mark.slow
def test_of_several_threads_the_one_that_did_not_return(trace_of: Any) -> None:
    other = ring_call(31, 3, [(0, START_NS + 500, START_NS + 600)], thread=2)
    finding = only(trace_of(recorded(end=False, pid=PID).record(process_end()), ring([IN_STEP_THREE, other])))
    assert finding.kernel == "cpp_fused_relu_0"
    third = ring_call(32, 3, [(0, START_NS + 50, -1)], thread=3)
    finding = only(trace_of(recorded(end=False, pid=PID).record(process_end()), ring([IN_STEP_THREE, other, third])))
    assert finding.kernel == "cpp_fused_relu_0"
    assert [row["kernel"] for row in finding.evidence["other_threads"]] == ["extern_kernels.mm"]


# On a device.


def triton_site(number: int, line: int, kernel: str, read: str, written: str) -> LaunchSite:
    arguments = [
        replace(argument(read, "in"), parameter="in_ptr0"),
        replace(argument(written, "out"), parameter="out_ptr0"),
    ]
    return LaunchSite(number, "call", line, kernel, "triton", arguments, [], snodes=[f"op{number}"])


def on_device(error: UncaughtException | None = None, device_error: str | None = ILLEGAL) -> LogBuilder:
    """Step 0 is in the log; step 1 in the ring."""
    made, leaves = "triton_made", "triton_leaves"
    sites = [
        triton_site(0, 34, made, "arg0_1", "buf0"),
        triton_site(1, 36, leaves, "buf0", "buf1"),
        triton_site(2, 37, made, "buf1", "buf0"),
    ]
    log = LogBuilder(PID).record(run(pid=PID))
    ids: Any = {"frame_id": 0, "frame_compile_id": 0, "attempt": 0}
    log.torch("inductor_output_code", {"filename": "/tmp/x/cwrapper.py"}, TRITON.encode(), **ids)
    log.record(graph(functions=["call"], sites=sites, memory=[]))
    for site in sites:
        metas = [
            TensorMeta(n, "float32", [16, 16], [16, 1], "cuda:0", 0, 1024, storage=0x7F00 + 0x400 * n) for n in range(2)
        ]
        log.record(Tensors(0, 0, site.site, metas))
    begin = MONOTONIC_NS + 1_000
    log.record(
        Launches(
            Calls([0], [0], [0], [0], [1], [None], [begin], [900], [3], ["ok"]),
            [0, 1, 2], [begin + 1, begin + 3, begin + 5], [begin + 2, begin + 4, begin + 6],
        )
    )  # fmt: skip
    log.record(Steps([0], ["inference"], ["user"], [begin], [begin + 1_000]))
    if error is not None:
        log.record(error)
    if error is not None or device_error is not None:
        log.record(End("exit", MONOTONIC_NS + 9_000_000, device_error))
    return log


LAUNCHED = [(site, START_NS + 100 * site + 1, START_NS + 100 * site + 50) for site in range(3)]


def device_ring(position: int) -> bytes:
    """Three launches have returned to the host; the device has finished `position` of them."""
    return ring([ring_call(1, 1, LAUNCHED, ended=START_NS + 900, stream=0)], [(7, 1, position)])


def test_what_was_in_flight_on_the_device(trace_of: Any) -> None:
    error = UncaughtException(CUDA, f"{ILLEGAL}\nCompile with `TORCH_USE_CUDA_DSA`", [])
    trace = trace_of(on_device(error), device_ring(1))
    finding = only(trace)
    assert finding.title == (
        f"{ILLEGAL} at launch 4 of step 1, triton_leaves, the first of 2 in flight on the device, "
        "up to launch 5, triton_made"
    )
    evidence = finding.evidence
    assert [(row["launch_in_step"], row["kernel"], row["device"]) for row in evidence["in_flight"]] == [
        (2, "triton_leaves", 0),
        (3, "triton_made", 0),
    ]
    assert [(row["launch_in_step"], row["kernel"]) for row in evidence["last_finished"]] == [(1, "triton_made")]
    assert evidence["exception"] == f"{CUDA}: {ILLEGAL}"
    assert evidence["symptom"] == ILLEGAL
    (written,) = [row for row in evidence["arguments"] if row["role"] == "out"]
    assert (written["address"], written["stride"], written["storage_bytes"]) == ("0x8300", [16, 1], 1024)
    leaving = evidence["index_ranges"][0]
    assert (leaving["parameter"], leaving["does"], leaving["leaves_storage"]) == ("out_ptr0", "writes", True)
    assert (leaving["first"], leaving["last"], leaving["storage_last"]) == (0, 15 + 32 * 15, 255)
    assert evidence["inside"] == (
        "according to its source, the kernel writes elements 0 to 495 of buf1 (out_ptr0), whose storage has elements"
        " 0 to 255"
    )


def test_one_launch_in_flight_is_the_one(trace_of: Any) -> None:
    finding = only(trace_of(on_device(), device_ring(2)))
    assert finding.title == f"{ILLEGAL} at launch 5 of step 1, triton_made, in flight on the device"
    assert finding.evidence["inside"] == "according to its source, every index stays within its storage"


@pytest.mark.slow
def test_the_panels_say_it(trace_of: Any) -> None:
    trace = trace_of(on_device(), device_ring(1))
    launches = {launch: page.death for launch in range(6) if (page := launch_page_of(trace, launch)).death is not None}
    assert {launch: death.part for launch, death in launches.items() if death} == {
        3: "last_finished",
        4: "died",
        5: "in_flight",
    }
    died = launches[4]
    assert died is not None
    assert died.sentences[0].startswith(
        "in: buf0 float32 [16, 16] stride [16, 1] in 1,024 B at 0x7f00, written by launch 3 (triton_made)"
    )
    assert any("495" in sentence for sentence in died.sentences)
    data = data_of(whole_report(trace))
    assert {int(launch): death["part"] for launch, death in data["deaths"].items()} == {
        3: "last_finished",
        4: "died",
        5: "in_flight",
    }


# Exceptions.


def frame(file: str) -> Frame:
    return Frame(file, 7, "forward", "y = x / 0")


@pytest.mark.parametrize(
    ("error", "kinds"),
    [
        (UncaughtException("ValueError", "bad\nbatch", [frame("/src/train.py")]), [("exception", "warning")]),
        (UncaughtException("KeyboardInterrupt", "", []), []),
        (None, []),
    ],
)
def test_an_exception_of_the_program(
    trace_of: Any, error: UncaughtException | None, kinds: list[tuple[str, str]]
) -> None:
    log = recorded(end=False, pid=PID)
    if error is not None:
        log.record(error)
    log.record(End("exit", MONOTONIC_NS + 2_000_000)).record(process_end(exit_code=1, signal=None))
    findings = all_findings(trace_of(log))
    assert [(one.kind, one.severity) for one in findings] == kinds
    if kinds:
        assert findings[0].title == "The program ended after step 2 with ValueError: bad"
        assert findings[0].source is not None
        assert findings[0].source.file == "/src/train.py"


IN_TORCH = "/venv/lib/python3.11/site-packages/torch/autograd/graph.py"


@pytest.mark.parametrize(
    ("files", "shown"),
    [
        (["/src/train.py", "/src/loss.py", IN_TORCH, "<eval_with_key>.5"], "/src/loss.py"),
        ([IN_TORCH], IN_TORCH),
    ],
)
def test_an_exception_of_a_package_is_at_the_line_of_the_program(trace_of: Any, files: list[str], shown: str) -> None:
    text = "a variable needed for gradient computation has been modified by an inplace operation: [3, 4]"
    log = recorded(end=False, pid=PID)
    log.record(UncaughtException("RuntimeError", text, [frame(file) for file in files]))
    (finding,) = all_findings(trace_of(log.record(End("exit", MONOTONIC_NS + 2_000_000))))
    assert finding.source is not None
    assert finding.source.file == shown
    assert finding.proof[0].startswith("Between the forward pass and this backward pass, a tensor")


@pytest.mark.slow
def test_an_exception_that_left_a_launch(trace_of: Any) -> None:
    """It came through the wrapper; one that came later, from elsewhere, is the program's own."""
    for file, kind, severity in (("/tmp/x/cwrapper.py", "crash", "critical"), ("/a.py", "exception", "warning")):
        log = recorded(end=False, pid=PID)
        batch = calls(90, 3, START_NS)
        ended = replace(batch.calls, state=["ok", "raised"])
        log.record(replace(batch, calls=ended, end_ns=[*batch.end_ns[:3], -1]))
        log.record(UncaughtException("RuntimeError", "shape", [frame("/src/a.py"), frame(file)]))
        log.record(End("exit", START_NS + 2_000_000))
        (finding,) = all_findings(trace_of(log))
        assert (finding.kind, finding.severity) == (kind, severity)
        if kind == "crash":
            assert (
                finding.title
                == "true_graph_0 (model.py:12) raised RuntimeError: shape, in launch 18 of step 3, true_graph_0"
            )


@pytest.mark.slow
def test_other_ways_to_end(trace_of: Any) -> None:
    late = only(trace_of(recorded(pid=PID).record(process_end())))
    assert (late.severity, late.evidence["signal"]) == ("warning", "SIGSEGV")
    assert "after its recording had ended" in late.title
    assert all_findings(trace_of(recorded(pid=PID).record(process_end(signal=2)))) == []
    limit = only(trace_of(recorded(end=False, pid=PID).record(process_end(signal=15, timed_out=True))))
    assert limit.severity == "warning"
    assert limit.title.startswith(
        f"Process {PID} was ended at its time limit of 3.00 s after step 2, outside any launch"
    )
    left = trace_of(recorded(end=False, pid=PID).record(process_end(exit_code=0, signal=None)))
    assert only(left, "not_recorded").title == f"Not recorded: the end of process {PID} (it wrote no end record)"
    shell = only(trace_of(recorded(end=False, pid=PID).record(process_end(exit_code=134, signal=None))))
    assert "was killed by SIGABRT" in shell.title
    other = only(trace_of(recorded(end=False, pid=PID).record(process_end(pid=1))))
    assert other.title.startswith("The log has no end record")


def test_damaged_records_are_counted(trace_of: Any) -> None:
    """A tail that is no text, a run that is no run: no traceback, no finding that is made up."""
    log = recorded(pid=PID)
    for payload in (b'{"pid": "x"}', b"[]", b'{"pid": 1, "exit_code": null, "signal": 9e99, "timed_out": 0}'):
        log.artifact("stepscope_process_end", payload)
    log.artifact("stepscope_uncaught_exception", b'{"type": 1}')
    trace = trace_of(log)
    assert summary(trace)["ingest"]["skipped"] == {"broken_payload": 4}
    assert all_findings(trace) == []


# Runs of --crash.


# Words of tracebacks.


def test_compile_records_alone_are_no_death(trace_of: Any) -> None:
    found = all_findings(trace_of(compile_records(LogBuilder(PID))))
    assert [one.kind for one in found] == ["unread_log"]  # the log of a recorder has a run record


def test_who_waited_knows_better_than_a_process_of_the_same_id(trace_of: Any) -> None:
    """This process runs and has the log open, and so the log's would, going by its id and its begin."""
    log = LogBuilder(os.getpid()).record(run(pid=os.getpid(), unix_ns=time.time_ns()))
    trace = trace_of(log)
    with open(list_runs(trace)[0].path):
        assert all_findings(trace) == []
    assert only(trace_of(log.record(process_end(pid=os.getpid())))).evidence["signal"] == "SIGSEGV"
