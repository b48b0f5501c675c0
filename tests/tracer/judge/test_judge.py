"""The judge over steps: what it keeps of the last one."""

from __future__ import annotations

from pathlib import Path

from stepscope.tracer.config import TraceConfig
from stepscope.tracer.judge.judge import Judge
from stepscope.tracer.judge.plan import FunctionPlan
from stepscope.tracer.runtime.values.save import TensorSaver
from stepscope.tracer.schema.gaps import Skipped
from stepscope.tracer.schema.judging import JudgedCall
from stepscope.tracer.schema.record import Record


class Sink:
    def __init__(self) -> None:
        self.written: list[Record] = []

    def write(self, record: Record) -> None:
        self.written.append(record)

    def skipped(self, record: Skipped) -> None:
        raise AssertionError(record)

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


def test_a_forked_child_does_not_write_the_verdicts_of_its_parent() -> None:
    sink = Sink()
    judge = judge_of_last(sink)
    judge.after_fork()
    judge.flush()
    assert not sink.written
