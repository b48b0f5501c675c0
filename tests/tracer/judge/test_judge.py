"""The judge over steps: what it keeps of the last one."""

from __future__ import annotations

from pathlib import Path

import torch

from stepscope.tracer.config import TraceConfig
from stepscope.tracer.judge.judge import Judge
from stepscope.tracer.judge.plan import FunctionPlan
from stepscope.tracer.runtime.values.save import TensorSaver
from stepscope.tracer.schema.gaps import Skipped
from stepscope.tracer.schema.judging import JudgedCall
from stepscope.tracer.schema.record import Record
from tests.tracer.judge.test_call import plan_of, stored


class Sink:
    def __init__(self) -> None:
        self.written: list[Record] = []
        self.said: list[Skipped] = []

    def write(self, record: Record) -> None:
        self.written.append(record)

    def skipped(self, record: Skipped) -> None:
        self.said.append(record)

    def failed(self, where: str, error: BaseException) -> None:
        raise AssertionError(where) from error


def judge_of_last(sink: Sink) -> Judge:
    """Return a judge that has judged an empty call in each of two steps."""
    made = Judge(TraceConfig(Path("unused"), judge="last"), sink, TensorSaver(Path("unused"), 0))
    for step in range(2):
        call = made.begin(step, FunctionPlan(None))
        assert call is not None
        made.end(call, 0, step, step)
    return made


def test_only_the_last_step_is_written() -> None:
    sink = Sink()
    judge = judge_of_last(sink)
    assert not sink.written
    judge.flush()
    assert [one.step for one in sink.written if isinstance(one, JudgedCall)] == [1]
    assert not sink.said


def test_inputs_of_steps_that_were_not_the_last_leave_the_quota_to_it(tmp_path: Path) -> None:
    sink, saver = Sink(), TensorSaver(tmp_path, 2000)
    made = Judge(TraceConfig(tmp_path, judge="last"), sink, saver)
    for step in range(4):
        call = made.begin(step, plan_of(stored("op:aten.sin.default")))
        assert call is not None
        value = torch.full((4,), float(step))
        call.enter([value])
        for site, before, after in ((0, [value], [value]), (1, [torch.zeros(8), value], [torch.full((4,), 7.0)])):
            call.before(site, before)
            call.after(site, after)
        made.end(call, 0, step, step)
    (file,) = tmp_path.iterdir()
    assert file.name.startswith("step0003")
    assert torch.load(file).tolist() == [3.0] * 4
    assert saver.used_bytes == file.stat().st_size > 1000
    assert not saver.not_saved


def test_a_call_that_is_captured_into_a_cuda_graph_is_said_once() -> None:
    sink = Sink()
    made = Judge(TraceConfig(Path("unused"), judge="first"), sink, TensorSaver(Path("unused"), 0))
    for graph in (3, 3, 4):
        made.captured(graph)
    assert [one.graph for one in sink.said] == [3, 4]
    assert "a CUDA graph captured the call" in sink.said[0].why


def test_a_forked_child_does_not_write_the_verdicts_of_its_parent() -> None:
    sink = Sink()
    judge = judge_of_last(sink)
    judge.after_fork()
    judge.flush()
    assert not sink.written
