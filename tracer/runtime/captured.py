"""Graph calls that were recorded into a CUDA graph: each replay runs their launches again, with no Python in it.

A replay becomes a call of its own for each call that was captured: the same launches, all with the times of the
replay, and the values that the captured readings left behind in it.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from tracer.records import Skipped
from tracer.runtime.launches import Call, running_call
from tracer.runtime.replays import Replays
from tracer.runtime.stats.snapshots import runs
from tracer.runtime.value_batches import joined
from tracer.runtime.values import Together

if TYPE_CHECKING:
    from tracer.runtime.stats.arena import Arena
    from tracer.runtime.stats.snapshots import CapturedBlock, Snapshot


@dataclass(frozen=True)
class _Captured:
    """A call as it was captured."""

    call: Call
    enter: Callable[[], int]
    """Tells the step tracker of a call; gives its step."""
    wants_step: Callable[[int], bool]
    """Values of a replay in this step are asked for."""
    sites: list[int]
    together: Together | None
    blocks: list[CapturedBlock]


class CapturedCalls:
    """The captured calls of each CUDA graph of a process."""

    def __init__(
        self,
        finish: Callable[[Call], None],
        failed: Callable[[str, BaseException], None],
        skipped: Callable[[Skipped], None],
    ) -> None:
        self._finish, self._failed, self._skipped = finish, failed, skipped
        self._by_graph: dict[int, list[_Captured]] = {}
        self._lock = threading.Lock()
        self._replays = Replays(self._on_replay, self._on_capture, self._on_reset)

    def attach(self) -> None:
        from tracer.runtime.stats.arena import watch_captures

        self._replays.attach()
        watch_captures(self._replays.current)

    def detach(self) -> None:
        from tracer.runtime.stats.arena import watch_captures

        watch_captures(None)
        self._replays.detach()
        self._by_graph.clear()

    def add(self, call: Call, enter: Callable[[], int], wants_step: Callable[[int], bool]) -> bool:
        """A call that was captured has ended. False: into a graph whose capture was not seen to begin."""
        graph = self._replays.current()
        found, call.readings = call.readings, []
        if graph is None:
            return False
        why = [_why_not(block) for _, block in found]
        for reason in sorted({reason for reason in why if reason is not None}):
            self._skipped(Skipped("values inside of a CUDA graph", reason, call.graph))
        readings = [reading for reading, reason in zip(found, why, strict=True) if reason is None]
        blocks: list[Any] = [block for _, block in readings]
        together = Together([prepared for prepared, _ in readings]) if readings else None
        captured = _Captured(call, enter, wants_step, call.rows[0::3], together, blocks)
        with self._lock:
            if id(graph) not in self._by_graph:
                self._by_graph[id(graph)] = []
                weakref.finalize(graph, self._forget, id(graph)).atexit = False
            self._by_graph[id(graph)].append(captured)
        return True

    def is_capturing(self) -> bool:
        """On any thread."""
        return self._replays.is_capturing()

    def _on_capture(self, graph: Any, begins: bool) -> None:
        """What was read before goes to the host now: during a capture it could not."""
        if begins:
            flush_devices()

    def _on_reset(self, graph: Any) -> None:
        self._forget(id(graph))
        for arena in _arenas():
            arena.forget(graph)

    def _forget(self, number: int) -> None:
        self._by_graph.pop(number, None)  # no lock: the garbage collector calls this, perhaps from under one

    def _on_replay(self, graph: Any, start_ns: int, end_ns: int) -> None:
        captured = self._by_graph.get(id(graph))
        if not captured:
            return
        try:
            snapshots: Sequence[Snapshot] | None = None
            replayed: dict[int, Call] = {}
            for one in sorted(captured, key=lambda one: one.call.number):  # a call begins before those inside it
                # What was not captured with it, as the function around a partition, runs in Python now too.
                parent = replayed.get(one.call.parent.number) or running_call() if one.call.parent else None
                call = replayed[one.call.number] = _replay(one, parent, start_ns, end_ns)
                if one.together is not None and one.wants_step(call.step):
                    snapshots = snapshots or _snapshots(graph)
                    if snapshots is not None:
                        call.readings = [(one.together, _ReplayedBlock(one.blocks, snapshots))]
                self._finish(call)
        except Exception as error:
            self._failed("replay", error)


def _replay(captured: _Captured, parent: Call | None, start_ns: int, end_ns: int) -> Call:
    of = captured.call
    call = Call(of.graph, of.function, None, parent)
    call.state = "replayed"
    call.thread = threading.get_native_id()
    call.step = parent.step if parent is not None else captured.enter()
    call.start_ns, call.end_ns = start_ns, end_ns
    launches = len(captured.sites)
    call.rows = [0] * (3 * launches)
    call.rows[0::3] = captured.sites
    call.rows[1::3] = [start_ns] * launches
    call.rows[2::3] = [end_ns] * launches
    return call


def _why_not(block: Any) -> str | None:
    """Why what a captured reading finds cannot be known for each replay."""
    if hasattr(block, "of"):
        why: str | None = block.skipped
        return why
    return getattr(block, "skipped", None) or "it reads tensors that are not on the device of the graph"


def forget_parent_devices() -> None:
    """In a forked child: CUDA cannot be used there, and the locks may be held by threads that are gone."""
    for name in ("tracer.runtime.stats.arena", "tracer.runtime.stats.cpu"):
        module = sys.modules.get(name)
        if module is not None:
            module.forget_parent_process()


def _arenas() -> list[Arena]:
    """Those that exist; none where nothing was read on a device."""
    loaded = sys.modules.get("tracer.runtime.stats.arena")
    found: list[Arena] = loaded.arenas() if loaded is not None else []
    return found


def flush_devices() -> None:
    """Send the statistics that lie on devices to the host. Nothing waits for them."""
    for arena in _arenas():
        arena.flush()


def _snapshots(graph: Any) -> Sequence[Snapshot] | None:
    for arena in _arenas():
        found = arena.snapshot(graph)
        if found is not None:
            return found
    return None


class _ReplayedBlock:
    """The rows that a replay left of all readings of a call."""

    __slots__ = ("_blocks",)

    def __init__(self, captured: Sequence[CapturedBlock], snapshots: Sequence[Snapshot]) -> None:
        self._blocks = runs(block.of(snapshots) for block in captured)

    def rows(self) -> npt.NDArray[Any] | None:
        found = []
        for block in self._blocks:
            rows = block.rows()
            if rows is None:
                return None
            found.append(rows)
        return joined(found)

    def wait(self) -> npt.NDArray[Any]:
        return joined([block.wait() for block in self._blocks])
