"""What a device has finished, told by the marks that it writes: with a driver that runs when the test says so."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from stepscope.tracer.recorder import Recorder
from stepscope.tracer.runtime.device import marks as device_marks
from stepscope.tracer.runtime.device.replays import Replays
from stepscope.viewer.ingest.rows import IndexRows
from tests.tracer.hand_made import HandMade, recorder_in, ring_rows, rows_of
from tests.tracer.runtime.device.fake_driver import FakeDriver

LAUNCHES = 40


@pytest.fixture(params=[True, False], ids=["shared", "copied"])
def driver(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    fake = FakeDriver(can_share_files=request.param)
    monkeypatch.setattr(device_marks, "_load", lambda: fake)
    monkeypatch.setattr(device_marks, "raw_stream_of", lambda: lambda device: 7)
    monkeypatch.setattr(device_marks, "SHARE", 0)
    return fake


@pytest.fixture
def recorder(tmp_path: Path) -> Iterator[Recorder]:
    made = recorder_in(tmp_path)
    made.timer.wanted = lambda call: None  # type: ignore[method-assign]
    with made:
        yield made


def graph_on(driver: FakeDriver, recorder: Recorder) -> HandMade:
    graph = HandMade(recorder, LAUNCHES, is_capturing=lambda: driver.capturing is not None)
    graph.hooks._device, graph.hooks._device_index = "cuda:0", 0
    return graph


def seen(recorder: Recorder, tmp_path: Path) -> IndexRows:
    """What the file says now, as after a death."""
    recorder.marks.copy()
    rows = rows_of(tmp_path)
    assert not rows.tables["problems"]
    return rows


def in_flight(rows: IndexRows) -> list[int]:
    return [position for role, _, position, _ in ring_rows(rows) if role == "in_flight"]


def test_what_stands_behind_the_last_mark_is_in_flight(driver: FakeDriver, recorder: Recorder, tmp_path: Path) -> None:
    graph = graph_on(driver, recorder)
    graph()
    driver.is_held = True
    graph()
    assert in_flight(seen(recorder, tmp_path)) == list(range(LAUNCHES))
    driver.run(1)
    found = seen(recorder, tmp_path)
    assert in_flight(found) == list(range(16, LAUNCHES))
    assert ("last_finished", 1, 15, True) in ring_rows(found)
    driver.run(1)
    assert in_flight(seen(recorder, tmp_path)) == list(range(32, LAUNCHES))
    driver.run()
    assert in_flight(seen(recorder, tmp_path)) == []


def test_marks_keep_to_their_share_and_make_up_for_what_was_saved(
    driver: FakeDriver, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_marks, "SHARE", 1 << 20)
    graph = graph_on(driver, recorder)
    graph()  # one mark, and none for some seconds
    driver.is_held = True
    graph()
    assert len(driver.queue) == 0
    recorder.marks.due[0] = 0  # as after a second without any
    monkeypatch.setattr(device_marks, "SHARE", 10)
    graph()
    assert len(driver.queue) == LAUNCHES // 16 + 1


def capture(driver: FakeDriver, recorder: Recorder, graph: HandMade) -> list[tuple[int, int]]:
    captured = recorder.cuda_graphs._replays._captured
    captured[threading.get_ident()] = driver
    driver.capturing = []
    graph()
    marks, driver.capturing = driver.capturing, None
    captured.clear()
    return marks


def replay(driver: FakeDriver, recorder: Recorder, marks: list[tuple[int, int]]) -> None:
    recorder.cuda_graphs._on_replay(driver, True)
    driver.replay(marks)
    recorder.cuda_graphs._on_replay(driver, False)


def test_a_replay_is_followed_by_the_marks_inside_of_it(driver: FakeDriver, recorder: Recorder, tmp_path: Path) -> None:
    graph = graph_on(driver, recorder)
    graph()
    marks = capture(driver, recorder, graph)
    assert len(marks) == 2  # its begin and its end: too short for more
    replay(driver, recorder, marks)
    assert not recorder._problems._failures
    assert in_flight(seen(recorder, tmp_path)) == []
    driver.is_held = True
    replay(driver, recorder, marks)
    replay(driver, recorder, marks)
    found = in_flight(seen(recorder, tmp_path))
    assert found == [*range(LAUNCHES), *range(LAUNCHES)]
    driver.run(len(marks) + 1)  # the first replay, and the mark behind it
    assert in_flight(seen(recorder, tmp_path)) == list(range(LAUNCHES))


def test_what_another_thread_had_not_submitted_stands_behind_a_mark(
    driver: FakeDriver, recorder: Recorder, tmp_path: Path
) -> None:
    """A launch begins in one thread, and waits while another one launches, whose marks the device reaches."""

    def wait() -> None:
        has_begun.set()
        assert may_go_on.wait(60)

    has_begun, may_go_on = threading.Event(), threading.Event()
    slow = HandMade(recorder, 1, wait, is_capturing=lambda: False)
    slow.hooks._device, slow.hooks._device_index = "cuda:0", 0
    graph = graph_on(driver, recorder)
    graph()
    thread = threading.Thread(target=slow)
    thread.start()
    assert has_begun.wait(60)
    graph()
    driver.is_held = True
    may_go_on.set()
    thread.join()
    assert in_flight(seen(recorder, tmp_path)) == [0]
    driver.run()
    assert in_flight(seen(recorder, tmp_path)) == []


def test_marks_of_a_replay_tell_how_far_it_is(
    driver: FakeDriver, recorder: Recorder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_marks, "GRAPH_FLAGS", 1)
    graph = graph_on(driver, recorder)
    graph()
    marks = capture(driver, recorder, graph)
    replay(driver, recorder, marks)
    driver.is_held = True
    replay(driver, recorder, marks)
    driver.run(2)  # its begin, and 16 launches
    assert in_flight(seen(recorder, tmp_path)) == list(range(16, LAUNCHES))


@pytest.mark.parametrize("is_written", [False, True])
def test_a_replay_inside_of_another_call(
    driver: FakeDriver, recorder: Recorder, tmp_path: Path, is_written: bool
) -> None:
    """Also where the ring uses the block of the first one again, for it is in the log."""
    inner = graph_on(driver, recorder)
    inner()
    marks = capture(driver, recorder, inner)
    outer = HandMade(recorder, 1, lambda: replay(driver, recorder, marks), is_capturing=lambda: False)
    outer.hooks._device, outer.hooks._device_index = "cuda:0", 0
    for _ in range(2):
        outer()
    assert in_flight(seen(recorder, tmp_path)) == []
    driver.is_held = True
    outer()
    if is_written:
        recorder.flush()
    outer()
    driver.run(1)  # the first replay has begun, and so has what stands around it
    assert in_flight(seen(recorder, tmp_path)) == [*range(LAUNCHES), 0, *range(LAUNCHES)]


def test_marks_of_a_graph_that_is_gone_say_nothing_of_the_next_one(
    driver: FakeDriver, recorder: Recorder, tmp_path: Path
) -> None:
    """It has more launches, and its marks are where those of the first one were."""
    short = HandMade(recorder, 20, is_capturing=lambda: driver.capturing is not None)
    short.hooks._device, short.hooks._device_index = "cuda:0", 0
    graph = graph_on(driver, recorder)
    graph()
    replay(driver, recorder, capture(driver, recorder, short))
    recorder.cuda_graphs._on_reset(driver)
    marks = capture(driver, recorder, graph)
    driver.is_held = True
    replay(driver, recorder, marks)
    assert in_flight(seen(recorder, tmp_path)) == list(range(LAUNCHES))


def test_nothing_is_put_into_the_default_stream_of_another_device(
    driver: FakeDriver, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the current device is another one, as behind a wrapper that has set its own for a while."""
    monkeypatch.setattr(device_marks, "raw_stream_of", lambda: lambda device: 0)
    current = [0]
    monkeypatch.setattr(torch.cuda, "current_device", lambda: current[0])
    graph = graph_on(driver, recorder)
    graph()
    driver.is_held = True
    current[0] = 1
    graph()
    assert not driver.queue
    current[0] = 0
    graph()
    assert driver.queue


def test_a_device_that_cannot_be_asked_any_more_raises_nothing_into_the_program(
    driver: FakeDriver, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails() -> int:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr(device_marks, "raw_stream_of", lambda: lambda device: 0)
    monkeypatch.setattr(torch.cuda, "current_device", fails)
    graph = graph_on(driver, recorder)
    graph()
    driver.is_held = True
    graph()
    assert not driver.queue
    assert not recorder._problems._failures


def test_threads_that_begin_at_once_wait_for_the_driver(driver: FakeDriver, recorder: Recorder) -> None:
    def register(*arguments: object) -> int:
        is_loading.set()
        may_go_on.wait(5)
        return 801

    is_loading, may_go_on = threading.Event(), threading.Event()
    driver.cuMemHostRegister_v2 = register  # type: ignore[assignment]
    graph = graph_on(driver, recorder)
    threads = [threading.Thread(target=graph) for _ in range(2)]
    threads[0].start()
    assert is_loading.wait(60)
    threads[1].start()
    threads[1].join(0.2)
    may_go_on.set()
    for thread in threads:
        thread.join()
    assert not recorder._problems._failures


def test_a_thread_that_knows_no_device_reports_no_error(driver: FakeDriver, recorder: Recorder, tmp_path: Path) -> None:
    graph_on(driver, recorder)()
    driver.error = 201
    recorder.stop()
    assert not rows_of(tmp_path).tables["device_errors"]


def test_an_exception_of_a_signal_handler_passes_a_replay_and_no_other_does(monkeypatch: pytest.MonkeyPatch) -> None:
    class Graph:
        def replay(self) -> None: ...

        capture_begin = capture_end = reset = replay

    class TimeLimit(Exception): ...

    def on_alarm(number: int, frame: object) -> None:
        raise TimeLimit

    def on_replay(graph: Any, begins: bool) -> None:
        if handled:
            signal.raise_signal(signal.SIGALRM)
        raise ValueError

    handled: list[int] = []
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    before = signal.signal(signal.SIGALRM, on_alarm)
    replays = Replays(on_replay)
    replays.attach()
    try:
        Graph().replay()
        handled.append(1)
        with pytest.raises(TimeLimit):
            Graph().replay()
    finally:
        replays.detach()
        signal.signal(signal.SIGALRM, before)


def test_a_device_that_has_failed_is_named_at_the_end_and_keeps_the_ring(
    driver: FakeDriver, recorder: Recorder, tmp_path: Path
) -> None:
    graph = graph_on(driver, recorder)
    graph()
    driver.is_held = True
    graph()
    driver.run(1)
    driver.error = 700
    graph()
    recorder.stop()
    rows = rows_of(tmp_path)
    assert set(range(16, LAUNCHES)) <= set(in_flight(rows))
    assert list(rows.tables["device_errors"]) == [
        {"log": 0, "text": "CUDA_ERROR_ILLEGAL_ADDRESS (an illegal memory access was encountered)"}
    ]
    assert list(tmp_path.glob("*.ring"))


def test_no_driver_costs_the_marks_alone(recorder: Recorder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_driver() -> None:
        raise OSError("libcuda.so.1: cannot open shared object file")

    monkeypatch.setattr(device_marks, "_load", no_driver)
    graph = HandMade(recorder, LAUNCHES, is_capturing=lambda: False)
    graph.hooks._device, graph.hooks._device_index = "cuda:0", 0
    graph()
    rows = rows_of(tmp_path)
    assert rows.tables["ring_launches"]
    assert any("libcuda" in row["why"] for row in rows.tables["not_recorded"])
    assert not recorder._problems._failures
