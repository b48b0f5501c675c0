"""The work of devices that PyTorch's profiler saw stands at its launch, at its step, and on its stream."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from stepscope.tracer.schema.launches import Calls, DeviceTimes, Launches
from stepscope.tracer.schema.profiles import DeviceWork
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace
from tests.logs.synthetic import MONOTONIC_NS, LogBuilder
from tests.logs.value_logs import CALL_NS, LAUNCH_NS, Program, ValueLog
from tests.viewer.client import Client

CALL = MONOTONIC_NS + 1_000_000
"""Start of the first call; each lasts half of `CALL_NS`, and each of its launches half of `LAUNCH_NS`."""
FIRST = CALL + LAUNCH_NS
REPLAY = 90


@dataclass
class Work:
    """A builder of the record, whose times count from the first call."""

    rows: list[tuple[Any, ...]] = field(default_factory=list)

    def add(
        self, name: str, start: int, duration: int, enqueued: int | None, stream: int = 7, thread: int | None = 1,
        call: int | None = None, launch: int = -1, device: int = 0,
    ) -> Work:  # fmt: skip
        at = None if enqueued is None else CALL + enqueued
        self.rows.append((name, device, stream, CALL + start, duration, thread, at, call, launch))
        return self

    def record(self, began: int = -1, ended: int = 10 * CALL_NS) -> DeviceWork:
        names, device, stream, start, duration, thread, at, call, launch = (
            list(column) for column in zip(*self.rows, strict=True)
        )
        index = {name: place for place, name in enumerate(dict.fromkeys(names))}
        places = [index[name] for name in names]
        return DeviceWork(
            CALL + began, CALL + ended, [*index], places, device, stream, start, duration, thread, at, call, launch
        )


def program() -> Program:
    return Program().launch("extern_kernels.mm", ["a"], ["buf0"]).launch("triton_a", ["buf0"], ["buf1"], "triton")


def two_steps(work: Work, began: int = -1, ended: int = 10 * CALL_NS) -> LogBuilder:
    """Return a log with a call in each of two steps, and work of devices."""
    log = ValueLog(program(), level="launches")
    log.call(program(), step=0)
    log.call(program(), step=1)
    log.log.record(work.record(began, ended))
    return log.end()


def joined(trace: Trace) -> list[tuple[str, int | None, int | None, int | None]]:
    return sql.rows(trace, "SELECT name, launch, call, step FROM device_work ORDER BY start_ns, name")


def test_work_belongs_to_the_launch_in_which_its_thread_enqueued_it(opened: Callable[[LogBuilder], Trace]) -> None:
    work = (
        Work()
        .add("mm_1", 1_000, 20, LAUNCH_NS + 10)
        .add("mm_2", 1_030, 20, LAUNCH_NS + 40)
        .add("triton_a", 1_060, 30, 2 * LAUNCH_NS + 10)
        .add("Memset (Device)", 1_100, 5, CALL_NS // 4)
        .add("other thread", 1_200, 5, LAUNCH_NS + 10, thread=2)
        .add("eager", 1_300, 5, CALL_NS // 2 + 10)
        .add("mm of the next step", 1_400, 5, CALL_NS + LAUNCH_NS + 10)
        .add("before", -50, 5, None, thread=None)
    )
    trace = opened(two_steps(work))
    assert joined(trace) == [
        ("before", None, None, None),
        ("mm_1", 0, 0, 0),
        ("mm_2", 0, 0, 0),
        ("triton_a", 1, 0, 0),
        ("Memset (Device)", None, 0, 0),
        ("other thread", None, None, 0),
        ("eager", None, None, 1),
        ("mm of the next step", 2, 1, 1),
    ]
    times = sql.rows(trace, "SELECT device_duration_ns FROM launches ORDER BY launch")
    assert times == [(40,), (30,), (5,), (None,)]
    panel = Client(trace).get("/launches/0.json").json()
    assert panel["work"] == [
        {"name": "mm_1", "kind": "kernel", "device": 0, "stream": 7, "start_ns": 900, "duration_ns": 20},
        {"name": "mm_2", "kind": "kernel", "device": 0, "stream": 7, "start_ns": 930, "duration_ns": 20},
    ]


def test_work_of_a_replay_belongs_to_the_launches_of_its_record(opened: Callable[[LogBuilder], Trace]) -> None:
    one = program()
    log = ValueLog(one, level="launches")
    log.call(one)
    start, end = CALL + CALL_NS, CALL + CALL_NS + 500
    calls = Calls([REPLAY], [0], [0], [1], [1], [None], [start], [500], [2], ["replayed"])
    log.log.record(Launches(calls, [0, 1], [start, start], [end, end]))
    work = (
        Work()
        .add("mm", CALL_NS + 100, 20, CALL_NS + 250, call=REPLAY, launch=0)
        .add("triton_a", CALL_NS + 130, 30, CALL_NS + 250, call=REPLAY, launch=1)
        .add("eager in the graph", CALL_NS + 170, 7, CALL_NS + 250)
        .add("unknown launch", CALL_NS + 180, 9, CALL_NS + 250, call=REPLAY)
        .add("no such launch", CALL_NS + 190, 9, CALL_NS + 250, call=REPLAY, launch=5)
    )
    trace = opened(log.log.record(work.record()))
    assert joined(trace) == [
        ("mm", 2, 1, 1),
        ("triton_a", 3, 1, 1),
        ("eager in the graph", None, None, 1),
        ("unknown launch", None, 1, 1),
        ("no such launch", None, 1, 1),
    ]


def test_inner_launches_come_before_the_launch_around_them(opened: Callable[[LogBuilder], Trace]) -> None:
    one = program()
    log = ValueLog(one, level="launches")
    calls = Calls(
        [0, 1], [0, 0], [0, 0], [0, 0], [1, 1], [None, 0], [CALL, CALL + 110], [1_000, 300], [1, 2], ["ok", "ok"]
    )
    log.log.record(
        Launches(calls, [0, 0, 1], [CALL + 100, CALL + 120, CALL + 200], [CALL + 900, CALL + 180, CALL + 260])
    )
    work = Work().add("inner", 500, 1, 150).add("between", 510, 1, 190).add("outer", 520, 1, 600)
    found = {name: launch for name, launch, _, _ in joined(opened(log.log.record(work.record())))}
    starts: dict[int | None, int] = dict(sql.rows(opened(log.log), "SELECT launch, start_ns FROM launches"))
    assert {name: starts[launch] - CALL for name, launch in found.items()} == {
        "inner": 120,
        "between": 100,
        "outer": 100,
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    ("began", "ended", "steps"), [(-1, 10 * CALL_NS, [0, 1]), (5, 10 * CALL_NS, [1]), (-1, CALL_NS, [0])]
)
def test_a_step_is_profiled_if_all_its_calls_ran_meanwhile(
    opened: Callable[[LogBuilder], Trace], began: int, ended: int, steps: list[int]
) -> None:
    work = Work().add("mm", 1_000, 20, LAUNCH_NS + 10).add("mm", CALL_NS + 1_000, 20, CALL_NS + LAUNCH_NS + 10)
    client = Client(opened(two_steps(work, began, ended)))
    shown = [step for step in (0, 1) if client.get(f"/steps/{step}.json").json()["devices"]]
    assert shown == steps


@pytest.mark.slow
def test_streams_that_overlap_and_idle_time_are_told(opened: Callable[[LogBuilder], Trace]) -> None:
    work = (
        Work()
        .add("mm", 1_000, 200, LAUNCH_NS + 10)
        .add("ncclDevKernel_AllReduce", 1_100, 300, LAUNCH_NS + 20, stream=20)
        .add("inside", 1_150, 50, LAUNCH_NS + 25, stream=13)
        .add("Memcpy HtoD (Pinned -> Device)", 1_900, 100, CALL_NS // 4)
        .add("mm", 2 * CALL_NS, 500, CALL_NS + LAUNCH_NS + 10)
        .add("mm", 100, 10, None, device=1)
    )
    client = Client(opened(two_steps(work)))
    (first,) = client.get("/steps/0.json").json()["devices"]
    assert first == {
        "device": 0, "start_ns": CALL, "end_ns": CALL + 2_000, "busy_ns": 500, "work_ns": 650, "streams": 3,
        "kernels": 2, "collectives": 1, "copies": 1, "outside": 1, "outside_ns": 100,
    }  # fmt: skip
    page = client.get("/steps/0").text
    assert "Device 0 is idle 75 % of its time for this step (1.50 us of 2.00 us)" in page
    assert "2 kernels, 1 collective, 1 copy or fill on 3 streams that overlap by 150 ns take 650 ns." in page
    assert "1 of them (100 ns) is outside of recorded launches." in page
    (second,) = client.get("/steps/1.json").json()["devices"]
    assert (second["start_ns"], second["busy_ns"]) == (CALL + 2_000, 500), "it begins when the work before it is done"


def test_the_timeline_has_the_streams_and_reaches_to_the_end_of_the_work(opened: Callable[[LogBuilder], Trace]) -> None:
    end = 3 * CALL_NS
    work = (
        Work()
        .add("side", 1_200, 50, LAUNCH_NS + 20, stream=13)
        .add("mm", 1_000, 20, LAUNCH_NS + 10)
        .add("eager", end - 10, 10, CALL_NS // 4)
    )
    client = Client(opened(two_steps(work)))
    found = client.get("/steps/0/timeline.json").json()
    assert found["streams"] == [{"device": 0, "stream": 7}, {"device": 0, "stream": 13}]
    assert found["end_ns"] == CALL + end
    columns = found["work"]
    names = [found["work_names"][site] for site in columns["site"]]
    shown = (columns[name] for name in ("thread", "launch", "start_ns", "duration_ns"))
    assert list(zip(*shown, strict=True)) == [
        (0, 0, 1_000, 20), (0, -1, end - 10, 10), (1, 0, 1_200, 50),
    ]  # fmt: skip
    assert names == [
        {"kernel": "mm", "kind": "extern"}, {"kernel": "eager", "kind": "kernel"}, {"kernel": "side", "kind": "extern"},
    ]  # fmt: skip


def test_a_kernel_takes_its_time_from_the_profiler_where_that_saw_it(opened: Callable[[LogBuilder], Trace]) -> None:
    log = ValueLog(program(), level="launches")
    log.call(program(), step=0)
    log.call(program(), step=1)
    log.log.record(DeviceTimes([0, 0], [0, 1], [9_000, 9_000], "events"))
    work = Work().add("mm", CALL_NS + 1_000, 20, CALL_NS + LAUNCH_NS + 10)
    log.log.record(work.record(began=CALL_NS - 1))
    rows = Client(opened(log.end())).get("/kernels.json").json()["kernels"]
    times = {row["kernel"]: (row["device_duration_ns"], row["device_timed"]) for row in rows}
    assert times == {"extern_kernels.mm": (20, 1), "triton_a": (9_000, 1)}


def test_a_log_without_a_profile_has_none_of_this(opened: Callable[[LogBuilder], Trace]) -> None:
    log = ValueLog(program(), level="launches")
    log.call(program())
    client = Client(opened(log.end()))
    assert client.get("/steps/0.json").json()["devices"] == []
    found = client.get("/steps/0/timeline.json").json()
    assert (found["streams"], found["work"]) == ([], None)
    assert client.get("/launches/0.json").json()["work"] == []


@pytest.mark.parametrize(
    "change",
    [{"launch": []}, {"name": [7]}, {"duration_ns": [-1]}, {"ended_ns": 0}, {"device": [1 << 40]}, {"stream": [-1]}],
)
def test_a_damaged_record_is_counted_and_left_out(
    opened: Callable[[LogBuilder], Trace], change: dict[str, Any]
) -> None:
    record = Work().add("mm", 1_000, 20, LAUNCH_NS + 10).record()
    for name, value in change.items():
        object.__setattr__(record, name, value)
    log = ValueLog(program(), level="launches")
    log.call(program())
    trace = opened(log.log.record(record))
    assert joined(trace) == []
    assert sql.number(trace, "SELECT sum(count) FROM problem_counts WHERE reason = 'broken_payload'") == 1
