"""The work of devices that PyTorch's profiler saw keeps its times, and that of a CUDA graph finds its launches."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from stepscope.tracer.runtime import profiled_work
from stepscope.tracer.runtime.device.captured_nodes import ReplayedWork
from stepscope.tracer.runtime.profiled_work import device_events, device_work
from stepscope.tracer.schema.profiles import DeviceWork

SAMPLE = json.loads((Path(__file__).parent / "profiled_graph.json").read_text())
SEEN_TYPES = (0, 1, 2)
ORIGIN_NS = 5_000_000_000


class Range:
    def __init__(self, start: float, end: float) -> None:
        self.start, self.end = start, end

    def elapsed_us(self) -> float:
        return self.end - self.start


def event(
    number: int, name: str, device: str, is_annotation: bool, index: int, resource: int, start: float, end: float
) -> Any:
    """Return an event as `torch.profiler.profile.events` has it."""
    return SimpleNamespace(
        id=number, name=name, device_type=SimpleNamespace(name=device), is_user_annotation=is_annotation,
        device_index=index, device_resource_id=resource, time_range=Range(start, end),
    )  # fmt: skip


def clock(at_us: float) -> int:
    return ORIGIN_NS + round(at_us * 1000)


EVENTS = [event(*row) for row in SAMPLE["events"]]


def replays(nodes: list[int] | None = None) -> list[ReplayedWork]:
    seen = [0]
    for kind in SAMPLE["nodes"] if nodes is None else nodes:
        seen.append(seen[-1] + (kind in SEEN_TYPES))
    return [
        ReplayedWork(one["thread"], clock(one["start_us"]), clock(one["end_us"]), seen, one["calls"])
        for one in SAMPLE["replays"]
    ]


def rows(found: list[ReplayedWork]) -> list[dict[str, Any]]:
    columns = "name", "device", "stream", "start_ns", "duration_ns", "thread", "enqueued_ns", "call", "launch"
    result = []
    for record in device_work(EVENTS, device_events(EVENTS), found, clock, 1, 2):
        assert isinstance(record, DeviceWork)
        for values in zip(*(getattr(record, column) for column in columns), strict=True):
            result.append(dict(zip(columns, values, strict=True)) | {"name": record.names[values[0]]})
    return result


def test_every_kernel_and_copy_is_kept_with_its_time_on_the_clock_of_the_launches() -> None:
    found = rows(replays())
    devices = [one for one in EVENTS if one.device_type.name != "CPU" and not one.is_user_annotation]
    assert len(found) == len(devices) == 33
    assert sum(one["duration_ns"] for one in found) == sum(round(e.time_range.elapsed_us() * 1000) for e in devices)
    assert [one["start_ns"] for one in found] == sorted(clock(e.time_range.start) for e in devices)
    host = {e.id: e for e in EVENTS if e.device_type.name == "CPU" and e.name.startswith("cu")}
    spans = [(clock(e.time_range.start), clock(e.time_range.end)) for e in host.values()]
    assert all(any(start <= one["enqueued_ns"] <= end for start, end in spans) for one in found)


def test_the_kernels_of_a_replay_belong_to_the_launches_that_were_captured() -> None:
    kernels = {
        number: names
        for one in SAMPLE["replays"]
        for (number, _), names in zip(one["calls"], one["kernels"], strict=True)
    }
    found = [one for one in rows(replays()) if one["call"] is not None]
    assert len({one["call"] for one in found}) == 6
    for number in {one["call"] for one in found}:
        launches = [(kernels[number][one["launch"]], one["name"]) for one in found if one["call"] == number]
        for launched, ran in launches:
            assert launched == ran if "triton" in launched + ran else launched == "extern_kernels.mm"
        assert {launched for launched, _ in launches} == set(kernels[number])
    per_replay = Counter(one["enqueued_ns"] for one in rows(replays()) if one["call"] is None)
    assert sorted(per_replay.values(), reverse=True)[:3] == [2, 2, 2], "the eager kernels in the graph have no launch"


@pytest.mark.parametrize("nodes", [[], [0] * 7, [0] * 12])
def test_a_replay_with_another_number_of_kernels_is_joined_to_no_launch(nodes: list[int]) -> None:
    found = rows(replays(nodes))
    assert len(found) == 33
    assert {(one["call"], one["launch"]) for one in found} == {(None, -1)}


def test_the_kernels_of_a_graph_with_one_call_belong_to_it_if_the_launches_are_unknown() -> None:
    alone = [ReplayedWork(one.thread, one.start_ns, one.end_ns, [], one.calls[:1]) for one in replays()]
    found = [one for one in rows(alone) if one["call"] is not None]
    assert len(found) == 24
    assert {one["launch"] for one in found} == {-1}


def test_work_on_several_streams_of_one_graph_has_no_order() -> None:
    replay = ReplayedWork(9, clock(0), clock(20), [0, 1, 2], [(5, [0, 1, 1, 2])])
    launch = event(7, "cudaGraphLaunch", "CPU", False, 0, 9, 1.0, 3.0)

    def launches(streams: tuple[int, int]) -> list[int]:
        kernels = [event(7, "kernel", "CUDA", False, 0, stream, 4.0 + stream, 30.0) for stream in streams]
        (record,) = device_work([launch, *kernels], kernels, [replay], clock, 1, 2)
        assert record.call == [5, 5]
        return record.launch

    assert launches((7, 7)) == [0, 1]
    assert launches((7, 13)) == [-1, -1]


def test_other_work_that_is_enqueued_while_a_replay_is_submitted_is_not_of_its_graph() -> None:
    replay = ReplayedWork(9, clock(0), clock(20), [0, 1], [(5, [0, 1])])
    calls = [
        event(7, "cudaMemcpyAsync", "CPU", False, 0, 9, 1.0, 2.0),
        event(8, "cudaGraphLaunch", "CPU", False, 0, 9, 3.0, 4.0),
    ]
    work = [event(number, "work", "CUDA", False, 0, 7, 5.0 + number, 6.0 + number) for number in (7, 8)]
    (record,) = device_work([*calls, *work], work, [replay], clock, 1, 2)
    assert (record.call, record.launch) == ([None, 5], [-1, 0])


def test_work_that_was_enqueued_before_has_no_thread() -> None:
    kernel = event(7, "kernel", "CUDA", False, 1, 13, 5.0, 9.0)
    (record,) = device_work([kernel], [kernel], [], clock, 1, 2)
    assert (record.thread, record.enqueued_ns, record.device, record.stream) == ([None], [None], [1], [13])


def test_ranges_of_the_host_are_no_work() -> None:
    annotation = event(7, "Optimizer.step#AdamW.step", "CUDA", True, 0, 7, 5.0, 9.0)
    assert device_events([annotation]) == []


def test_long_profiles_are_written_in_several_records(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = rows(replays())
    monkeypatch.setattr(profiled_work, "AT_ONCE", 10)
    assert len(list(device_work(EVENTS, device_events(EVENTS), replays(), clock, 1, 2))) == 4
    assert rows(replays()) == expected
