"""Calls and launches as the generated code reports them, and the columns made from them."""

from __future__ import annotations

from pathlib import Path
from types import FrameType
from typing import Any, cast

import torch

from stepscope.tracer.config import TraceConfig
from stepscope.tracer.judge.judge import Judge
from stepscope.tracer.judge.plan import FunctionPlan
from stepscope.tracer.log.launch_ring import FunctionShape, LaunchRing
from stepscope.tracer.runtime import calls
from stepscope.tracer.runtime.argument_forms import describe
from stepscope.tracer.runtime.calls import GraphCall
from stepscope.tracer.runtime.device.cuda_graphs import CudaGraphCalls
from stepscope.tracer.runtime.device.marks import DeviceMarks
from stepscope.tracer.runtime.device.times import EventTimer
from stepscope.tracer.runtime.launches import GraphHooks
from stepscope.tracer.runtime.lifetimes.tracker import Tracker
from stepscope.tracer.runtime.outbox import to_batch
from stepscope.tracer.runtime.profiling import StepProfiler
from stepscope.tracer.runtime.values.save import TensorSaver
from stepscope.tracer.schema.gaps import Skipped
from stepscope.tracer.schema.graphs import Argument, Graph, LaunchSite
from stepscope.tracer.schema.judging import JudgedCall
from stepscope.tracer.schema.launches import Calls, SameTensors, Tensors
from stepscope.tracer.schema.memory import LifetimeLayout, LifetimeMismatch
from stepscope.tracer.schema.record import Record


class Sink:
    def __init__(self) -> None:
        self.calls: list[GraphCall] = []
        self.seen: list[Tensors] = []
        self.failures: list[str] = []
        self.cuda_graphs = CudaGraphCalls(self)
        self.judge = Judge(TraceConfig(Path("unused")), self, TensorSaver(Path("unused"), 0))

    def write(self, record: Record) -> None:
        raise AssertionError("no call is judged")

    def finish(self, call: GraphCall) -> None:
        self.calls.append(call)

    timer = EventTimer()
    profiler = StepProfiler(cast(Any, None), None, lambda: False)
    ring = LaunchRing(lambda: None, lambda why: None)
    marks = DeviceMarks(ring, lambda why: None)
    lifetimes: Tracker | None = None
    running: dict[int, GraphCall] = {}  # noqa: RUF012
    is_on = True

    @property
    def asserts_lifetimes(self) -> bool:
        return False

    def describe_launch(self, graph: int, site: int) -> str:
        return f"site {site}"

    def tensors(self, record: Tensors) -> None:
        self.seen.append(record)

    def same_tensors(self, record: SameTensors) -> None: ...

    def layout(self, record: LifetimeLayout | LifetimeMismatch) -> None: ...

    def skipped(self, record: Skipped) -> None: ...

    def called(self, graph: int, frame: FrameType) -> None:
        pass

    def call_raised(self, call: GraphCall, error: BaseException) -> None:
        pass

    def enter(self, frame: object, phase: str | None) -> int:
        return 7

    def failed(self, where: str, error: BaseException) -> None:
        self.failures.append(where)


def graph(dynamic: bool = False) -> Graph:
    arguments = [Argument("x", "in", "x"), Argument("y", "out", "y")]
    site = LaunchSite(0, "call", 1, "kernel", "extern", arguments, ["y"])
    return Graph(3, "key", "0/0", "0_inference", "inference", False, dynamic, ["call"], [site], [])


def call_with(rows: list[int], start_ns: int, end_ns: int) -> GraphCall:
    call = GraphCall(0, 0, bytearray(1), None)
    call.rows, call.start_ns, call.end_ns = rows, start_ns, end_ns
    return call


def test_no_calls_are_an_empty_batch() -> None:
    batch = to_batch([])
    assert (batch.site, batch.start_ns, batch.end_ns) == ([], [], [])


def test_launches_of_calls_follow_one_another() -> None:
    calls = [
        call_with([0, 110, 115, 1, 130, 140], 100, 150),
        call_with([], 160, 161),
        call_with([2, 205, 206, 3, 210], 200, 230),
    ]
    batch = to_batch(calls)
    assert batch.site == [0, 1, 2, 3]
    assert batch.start_ns == [110, 130, 205, 210]
    assert batch.end_ns == [115, 140, 206, -1]
    assert batch.calls.launches == [2, 0, 2]
    assert batch.calls.duration_ns == [50, 1, 30]


def test_columns_have_one_row_a_call() -> None:
    batch = to_batch([call_with([0, 1, 2], 0, 3), call_with([], 4, 5)])
    lengths = {len(getattr(batch.calls, name)) for name in Calls.__dataclass_fields__ if name != "KIND"}
    assert lengths == {2}


def test_nested_calls_know_their_parent_and_share_its_step() -> None:
    sink = Sink()
    hooks = GraphHooks(sink, graph(), "0", [FunctionShape(0, 1)])
    outer = hooks.begin(0)
    inner = hooks.begin(0)
    hooks.end(inner)
    hooks.end(outer)
    assert [call.parent for call in sink.calls] == [outer, None]
    assert [call.step for call in sink.calls] == [7, 7]
    assert not calls.this_thread.stack


def test_a_call_that_was_left_by_an_exception_leaves_no_trace_on_the_thread() -> None:
    sink = Sink()
    hooks = GraphHooks(sink, graph(), "0", [FunctionShape(0, 1)])
    outer = hooks.begin(0)
    hooks.begin(0)
    hooks.end(outer)
    assert not calls.this_thread.stack


def test_a_call_that_waits_to_be_written_has_no_judge() -> None:
    class Judging(Sink):
        def write(self, record: Record) -> None:
            written.append(record)

    written: list[Record] = []
    sink = Judging()
    sink.judge.configure(TraceConfig(Path("unused"), judge="7"))
    hooks = GraphHooks(sink, graph(), "0", [FunctionShape(0, 1)])
    hooks.judged = [FunctionPlan(None)]
    call = hooks.begin(0)
    assert call.judge is not None
    hooks.end(call)
    assert sink.calls == [call]
    assert [one.judge for one in sink.calls] == [None]
    assert [type(record) for record in written] == [JudgedCall]
    late = hooks.begin(0)
    sink.running.clear()  # the recording has ended
    hooks.end(late)
    assert len(written) == 1


def test_arguments_are_described_once_and_again_when_a_dynamic_size_changes() -> None:
    for dynamic, expected in ((False, 1), (True, 2)):
        sink = Sink()
        hooks = GraphHooks(sink, graph(dynamic), "0", [FunctionShape(0, 1)])
        for size in (4, 4, 8):
            call = hooks.begin(0)
            if call.look is not None and call.look[0]:
                hooks.before(call, 0, (torch.zeros(size),))
                hooks.after(call, 0, (None,))
            hooks.end(call)
        inputs = [record for record in sink.seen if record.tensors[0].argument == 0]
        assert len(inputs) == expected


def test_a_sink_that_fails_is_told_and_the_call_goes_on() -> None:
    class Failing(Sink):
        def finish(self, call: GraphCall) -> None:
            raise RuntimeError("full")

        def enter(self, frame: object, phase: str | None) -> int:
            raise RuntimeError("no step")

    sink = Failing()
    hooks = GraphHooks(sink, graph(), "0", [FunctionShape(0, 1)])
    hooks.end(hooks.begin(0))
    assert sink.failures == ["begin", "end"]


def test_what_arguments_are() -> None:
    (view,) = describe(0, torch.zeros(4, 6)[1:, ::2])
    assert (view.size, view.stride, view.offset, view.storage_bytes) == ([3, 3], [6, 2], 6, 96)
    assert [(m.item, m.dtype) for m in describe(1, [torch.zeros(1), 3, None])] == [
        (0, "float32"),
        (1, "int"),
        (2, "NoneType"),
    ]
    (sparse,) = describe(0, torch.eye(2).to_sparse())
    assert (sparse.size, sparse.storage_bytes) == ([2, 2], None)
    assert list(describe(0, ...)) == []
