"""The launch ring: what began and what returned is in the file at once, and nothing that ended is lost."""

from __future__ import annotations

import errno
import os
import random
import struct
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from stepscope.tracer.log import launch_ring
from stepscope.tracer.log.launch_ring import FunctionShape, LaunchRing
from stepscope.tracer.recorder import Recorder
from stepscope.tracer.runtime import compiled
from stepscope.tracer.runtime.calls import GraphCall
from stepscope.tracer.schema import ring_format
from stepscope.tracer.schema.ring_format import BLOCKS_AT, Ring, RingCall, read_ring, ring_path
from tests.tracer.hand_made import HandMade, column, recorder_in, ring_rows, rows_of
from tests.waiting import PATIENCE_S


@pytest.fixture(params=["compiled", "python"])
def clock(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who writes the times of launches."""
    if request.param == "python":
        monkeypatch.setitem(compiled._found, "stepscope_ticks", "no compiler")


def ring_of(recorder: Recorder) -> Ring:
    """As another process finds it."""
    assert recorder.path is not None
    return read_ring(Path(ring_path(recorder.path)).read_bytes())


def running(recorder: Recorder) -> RingCall:
    (call,) = [call for call in ring_of(recorder).calls if call.end_ns is None]
    return call


@pytest.mark.usefixtures("clock")
def test_each_launch_is_in_the_file_while_it_runs(tmp_path: Path) -> None:
    seen: list[tuple[list[int], list[bool]]] = []

    def look() -> None:
        call = running(recorder)
        seen.append((list(call.sites), [end >= 0 for end in call.ends_ns]))

    with recorder_in(tmp_path) as recorder:
        HandMade(recorder, 5, look)()
    assert seen == [(list(range(n + 1)), [True] * n + [False]) for n in range(5)]
    assert not list(tmp_path.glob("*.ring"))


@pytest.mark.usefixtures("clock")
def test_a_launch_in_a_loop_is_in_flight_again(tmp_path: Path) -> None:
    seen: list[int] = []

    def look() -> None:
        call = running(recorder)
        seen.append(call.ends_ns[-1])

    with recorder_in(tmp_path) as recorder:
        HandMade(recorder, 1, look, turns=3)()
        assert seen == [-1, -1, -1]
        (call,) = ring_of(recorder).calls
        assert list(call.sites) == [0, 0, 0]
        assert all(end > 0 for end in call.ends_ns)


@pytest.mark.usefixtures("clock")
def test_what_has_not_been_written_is_read_from_the_ring(tmp_path: Path) -> None:
    recorder = recorder_in(tmp_path).start()
    graph = HandMade(recorder, 3)
    for _ in range(10):
        graph()
        recorder._steps.on_user()
    found = rows_of(tmp_path)  # nothing was flushed
    assert column(found, "launches", "step") == [step for step in range(10) for _ in range(3)]
    assert [row["step"] for row in found.tables["steps"]] == list(range(10))
    assert ring_rows(found) == [("last_started", 9, 2, True)]
    recorder.flush()
    assert column(rows_of(tmp_path), "launches", "step") == column(found, "launches", "step")
    recorder.stop()
    assert column(rows_of(tmp_path), "launches", "start_ns") == column(found, "launches", "start_ns")


@pytest.mark.usefixtures("clock")
def test_blocks_are_used_again(tmp_path: Path) -> None:
    with recorder_in(tmp_path) as recorder:
        graph = HandMade(recorder, 3)
        for _ in range(20):
            for _ in range(5):
                graph()
                recorder._steps.on_user()
            recorder.flush()
        assert len(ring_of(recorder).calls) + len(ring_of(recorder).steps) <= 12


@pytest.mark.usefixtures("clock")
def test_a_launch_that_raises_has_not_returned(tmp_path: Path) -> None:
    def fail() -> None:
        raise RuntimeError("no")

    with recorder_in(tmp_path) as recorder:
        with pytest.raises(RuntimeError, match="no"):
            HandMade(recorder, 3, fail)()
        (call,) = ring_of(recorder).calls
        assert (call.state, list(call.sites), list(call.ends_ns)) == ("raised", [0], [-1])


def test_the_file_grows_with_what_is_not_written(tmp_path: Path) -> None:
    ring = LaunchRing(lambda: tmp_path / "x.log", pytest.fail)
    shape, calls = FunctionShape(0, 500), []
    for number in range(100):
        call = GraphCall(0, 0, None, None)
        call.number = number
        ring.begin(call, shape)
        calls.append(call)
    assert ring.path is not None
    found = read_ring(ring.path.read_bytes())
    assert found.damaged == 0
    assert not found.calls  # none has started
    for call in calls:
        call.start_ns = call.number + 1
        ring.started(call, shape)
        call.cells[2 * (call.number % 500)] = call.number + 1
    found = read_ring(ring.path.read_bytes())
    assert sorted((call.call, call.sites[0], call.starts_ns[0]) for call in found.calls) == [
        (number, number % 500, number + 1) for number in range(100)
    ]
    ring.close(keep=False)


def test_without_room_on_the_disk_there_is_no_ring_and_the_program_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*arguments: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    monkeypatch.setattr(os, "pwrite", full)
    with recorder_in(tmp_path) as recorder:
        graph = HandMade(recorder, 3)
        for _ in range(3):
            graph()
    found = rows_of(tmp_path)
    assert len(column(found, "launches", "launch")) == 9
    assert [row["why"] for row in found.tables["not_recorded"] if row["what"] == "launches in flight"] == [
        "No space left on device"
    ]
    assert not list(tmp_path.glob("*.ring"))


def test_no_more_room_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ring_format, "MOST_BYTES", launch_ring.FIRST_BYTES)
    said: list[str] = []
    ring = LaunchRing(lambda: tmp_path / "x.log", said.append)
    calls = [GraphCall(0, 0, None, None) for _ in range(100)]
    for call in calls:
        ring.begin(call, FunctionShape(0, 500))
    assert ring.path is not None
    lost = read_ring(ring.path.read_bytes()).lost_calls
    assert lost == sum(call.block is None for call in calls) > 0
    assert len(said) == 1
    assert all(len(call.cells) >= 1000 for call in calls)
    ring.close(keep=False)


def test_an_exception_of_a_signal_handler_while_the_file_is_made_costs_that_call_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*arguments: object) -> None:
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(launch_ring, "allocate", interrupt)
    ring = LaunchRing(lambda: tmp_path / "x.log", lambda why: None)
    with pytest.raises(KeyboardInterrupt):
        ring.begin(GraphCall(0, 0, None, None), FunctionShape(0, 3))
    call = GraphCall(0, 0, None, None)
    ring.begin(call, FunctionShape(0, 3))
    assert call.block is not None
    ring.close(keep=False)


def test_a_file_that_got_the_number_of_a_closed_descriptor_stays_open(tmp_path: Path) -> None:
    """In a process of its own: it closes all descriptors, as daemons do."""
    script = """
import gc, os, sys
from pathlib import Path
from stepscope.tracer.log.launch_ring import LaunchRing
from stepscope.tracer.log.launch_ring import FunctionShape
from stepscope.tracer.runtime.calls import GraphCall
ring, call = LaunchRing(lambda: Path(sys.argv[1], "x.log"), print), GraphCall(0, 0, None, None)
ring.begin(call, FunctionShape(0, 3))
os.closerange(3, 64)
own = [os.open(os.devnull, os.O_RDONLY) for _ in range(8)]
ring.close(keep=False)
del ring, call
gc.collect()
for descriptor in own:
    os.fstat(descriptor)
"""
    done = subprocess.run([sys.executable, "-c", script, tmp_path], capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr


def test_a_ring_is_made_by_the_first_call_and_goes_with_the_end(tmp_path: Path) -> None:
    with recorder_in(tmp_path) as recorder:
        assert not list(tmp_path.glob("*.ring"))
        HandMade(recorder, 1)()
        (path,) = tmp_path.glob("*.ring")
        assert path.stat().st_mode & 0o777 == 0o400
    assert not list(tmp_path.glob("*.ring"))


def test_level_off_leaves_the_ring_alone(tmp_path: Path) -> None:
    import stepscope

    with recorder_in(tmp_path) as recorder:
        graph = HandMade(recorder, 2)
        graph()
        stepscope.configure(level="off")
        before = ring_of(recorder).calls
        graph()
        assert ring_of(recorder).calls == before


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_child_in_the_midst_of_a_call_writes_nothing_into_its_parents_ring(tmp_path: Path) -> None:
    def fork() -> None:
        pid = os.fork()
        if pid == 0:
            children.append(0)
            return
        children.append(pid)
        os.waitpid(pid, 0)
        in_flight.append(running(recorder).ends_ns[-1])

    children: list[int] = []
    in_flight: list[int] = []
    recorder = recorder_in(tmp_path).start()
    graph = HandMade(recorder, 1, fork)
    try:
        graph()
        if children == [0]:
            graph.module.extern_kernels.mm = lambda *a, **k: None
            graph()
            recorder.flush()
    finally:
        if children == [0]:
            os._exit(1)
    recorder.stop()
    assert in_flight == [-1]
    rings = list(tmp_path.glob("*.ring"))
    assert len(rings) == 1  # the child's, which left as a process that failed
    assert str(children[0]) in rings[0].name


def damaged(data: bytes, at: int, value: int) -> bytes:
    return data[:at] + struct.pack("<q", value) + data[at + 8 :]


DAMAGE: list[Callable[[bytes], bytes]] = [
    lambda data: b"",
    lambda data: data[:100],
    lambda data: data[: BLOCKS_AT + 17],
    lambda data: b"x" * len(data),
    lambda data: damaged(data, 16, 1 << 62),
    lambda data: damaged(data, 40, -5),
    lambda data: damaged(data, 56, 1 << 40),
    lambda data: damaged(data, BLOCKS_AT, 0),
    lambda data: damaged(data, BLOCKS_AT, -1),
    lambda data: damaged(data, BLOCKS_AT, 8),
    lambda data: damaged(data, BLOCKS_AT + 8, 77),
    lambda data: damaged(data, BLOCKS_AT + 11 * 8, 9),
    lambda data: damaged(data, BLOCKS_AT + 13 * 8, 1 << 62),
    lambda data: damaged(data, BLOCKS_AT + 14 * 8, 1 << 40),
    lambda data: damaged(data, BLOCKS_AT + 10 * 8, 1 << 40),
    lambda data: damaged(data, BLOCKS_AT + 3 * 8, 1 << 40),
]


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_ring_is_counted_and_costs_no_other_row(damage: Callable[[bytes], bytes], tmp_path: Path) -> None:
    recorder = recorder_in(tmp_path).start()
    graph = HandMade(recorder, 3)
    graph()
    recorder.flush()
    graph()
    assert recorder.ring.path is not None
    ring = recorder.ring.path
    data = damage(ring.read_bytes())
    recorder.stop()
    whole = column(rows_of(tmp_path), "launches", "launch")
    ring.write_bytes(data)
    assert column(rows_of(tmp_path), "launches", "launch")[: len(whole)] == whole


def test_bytes_at_random_are_a_ring_or_a_sentence(tmp_path: Path) -> None:
    recorder = recorder_in(tmp_path).start()
    graph = HandMade(recorder, 3)
    for _ in range(4):
        graph()
        recorder._steps.on_user()
    assert recorder.ring.path is not None
    data = recorder.ring.path.read_bytes()
    recorder.stop()
    chance = random.Random(0)
    for _ in range(300):
        changed = bytearray(data[: BLOCKS_AT + 2000])
        for _ in range(chance.randrange(1, 8)):
            changed[chance.randrange(len(changed))] = chance.randrange(256)
        with suppress(ValueError):
            read_ring(bytes(changed))


def test_a_link_or_a_pipe_is_no_ring(tmp_path: Path) -> None:
    recorder = recorder_in(tmp_path).start()
    HandMade(recorder, 1)()
    recorder.stop()
    assert recorder.path is not None
    ring = Path(ring_path(recorder.path))
    ring.symlink_to("/dev/zero")
    assert len(column(rows_of(tmp_path), "launches", "launch")) == 1
    ring.unlink()
    os.mkfifo(ring)
    assert len(column(rows_of(tmp_path), "launches", "launch")) == 1
