"""Finds the launches that were in flight, using the ring and the launches of a log."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from stepscope.tracer.schema.ring_format import UNFINISHED, Ring, RingStream
from stepscope.viewer.ingest.recorder.launch_batches import LaunchBatches
from stepscope.viewer.ingest.recorder.launch_places import LaunchPlaces
from stepscope.viewer.ingest.rows import IndexRows

Ints = npt.NDArray[np.int64]
MOST_IN_FLIGHT = 4096
"""Maximum number of launches in flight per stream; the first ones are kept."""
_NOT_RETURNED = -1
_REPLAYED = "replayed", UNFINISHED


def add_ring_launches(
    ring: Ring, rows: IndexRows, log: int, batches: LaunchBatches, places: LaunchPlaces, graph_id: Callable[[int], int]
) -> int | None:
    """Add the last launch of each thread, and the finished and unfinished launches of each stream of one log. Returns
    the start of the first launch in flight, or None if there was none."""
    launches = _Launches(ring, rows, log, batches, places, graph_id)
    in_flight = launches.add()
    return min((int(places.launch_start_ns[launch]) for launch in in_flight), default=None)


class _Launches:
    """The launches of a log, by their position in the order of submission."""

    def __init__(
        self,
        ring: Ring,
        rows: IndexRows,
        log: int,
        batches: LaunchBatches,
        places: LaunchPlaces,
        graph_id: Callable[[int], int],
    ) -> None:
        self.ring, self.rows, self.log, self.places, self.graph_id = ring, rows, log, places, graph_id
        self.ends_ns = places.ends.values
        every = np.arange(len(self.ends_ns))
        self.owner = places.owner(every)
        """Position of the call of each launch."""
        self.site = places.site(every, self.owner)
        self.returned = self.ends_ns != _NOT_RETURNED
        outer = [site["site"] for site in rows.tables["sites"] if site["kind"] == "subgraph"]
        self.is_kernel = ~np.isin(self.site, outer)
        """Whether a launch is not a call of another function of the wrapper, whose launches are listed separately."""
        self.number: Sequence[int] = batches.calls["call"]
        self.thread = np.frombuffer(batches.calls["thread"], dtype=np.int64)
        self.position = every - places.first[self.owner]
        self.states = batches.states
        self.runs = np.array([state == UNFINISHED for state in batches.states])
        self.of_call = {call.call: call for call in ring.calls}
        """Calls that are still in the ring, by number."""
        replays = [(call.graph, call.graph_slot, call) for call in ring.calls if call.graph_slot is not None]
        self.finished_in = {slot: call.finished_in_graph for _, slot, call in replays}
        self.slots = {graph: {slot for one, slot, _ in replays if one == graph} for graph, _, _ in replays}
        """Slots of each graph."""
        self.stream = self._streams()

    def _streams(self) -> Ints:
        """Return the stream of each call, or -1. Calls no longer in the ring ran on the stream of their graph."""
        usual = {call.graph: call.stream for call in self.ring.calls if call.stream is not None}
        found = [usual.get(graph, -1) for graph in self.places.graph.tolist()]
        for number, call in self.of_call.items():
            position = self.places.position.get(number)
            if position is not None:
                found[position] = -1 if call.stream is None else call.stream
        return np.array(found, dtype=np.int64)

    def add(self) -> set[int]:
        """Add all rows and return the launches in flight."""
        in_flight: set[int] = set()
        for index, stream in enumerate(self.ring.streams):
            in_flight |= self._add_stream(index, stream)
        threads = self.thread[self.owner]
        order = np.lexsort((self.position, self.places.launch_start_ns))
        for thread in np.unique(threads).tolist():
            last = int(order[threads[order] == thread][-1])
            self._add("last_started", last)
            if self.runs[self.owner[last]] and not self.returned[last] and last not in in_flight:
                self._add("in_flight", last)
                in_flight.add(last)
        return in_flight

    def _add_stream(self, index: int, stream: RingStream) -> set[int]:
        """Add the rows of a stream and return its launches that are not known to be finished."""
        captured = np.array([state == "captured" for state in self.states])
        calls = (self.stream == index) & ~captured
        launches = np.flatnonzero(calls[self.owner] & self.is_kernel)
        launches = launches[np.lexsort((self.position[launches], self.places.launch_start_ns[launches]))]
        sent_ns, thread = self._sent(stream)
        if sent_ns is None:
            return set()
        begun = int(np.searchsorted(self.places.launch_start_ns[launches], sent_ns, side="right"))
        is_finished = np.arange(len(launches)) < self._finished_in_graphs(launches, begun)
        # A launch of another thread that had not returned may be after the mark.
        sent_by = self.thread[self.owner[launches[:begun]]]
        is_finished[:begun] &= (sent_by == thread) | self._returned_by(launches[:begun], sent_ns)
        in_flight, finished = launches[~is_finished], launches[is_finished]
        if self.ring.is_blocking:  # only the first of each thread
            _, firsts = np.unique(self.thread[self.owner[in_flight]], return_index=True)
            in_flight = in_flight[np.sort(firsts)]
        if len(finished):
            self._add("last_finished", int(finished[-1]), stream)
        for launch in in_flight[:MOST_IN_FLIGHT].tolist():
            self._add("in_flight", launch, stream)
        return set(in_flight.tolist())

    def _sent(self, stream: RingStream) -> tuple[int | None, int | None]:
        """Return when and by which thread the last reached mark was submitted: 0 without a mark, None if unknown."""
        if stream.call is None or stream.position is None:
            return 0, None
        call = self.places.position.get(stream.call)
        if call is None:
            return None, None
        thread = int(self.thread[call])
        if stream.position >= self.places.count[call]:
            return int(self.places.call_end_ns[call]), thread  # after all launches of its inner calls
        if not stream.position:
            return int(self.places.call_start_ns[call]), thread
        last = int(self.places.first[call]) + stream.position - 1
        return max(int(self.ends_ns[last]), int(self.places.launch_start_ns[last])), thread

    def _returned_by(self, launches: Ints, time_ns: int) -> npt.NDArray[np.bool_]:
        """Return which launches had returned at `time_ns`; one that raised returned with its call."""
        owners = self.owner[launches]
        ended = ~self.runs[owners] & (self.places.call_end_ns[owners] <= time_ns)
        returned: npt.NDArray[np.bool_] = self.returned[launches] & (self.ends_ns[launches] <= time_ns)
        return ended | returned

    def _finished_in_graphs(self, launches: Ints, finished: int) -> int:
        """Return the number of finished launches by the marks inside CUDA graphs. These belong to the replay that began
        last on the device, the first of its kind that is not known to be finished."""
        owners, positions = self.owner[launches], self.position[launches]
        ends = np.append(np.flatnonzero(np.diff(owners)) + 1, len(owners))
        seen: set[int] = set()
        at = finished
        while at < len(launches):  # launches of a replay are adjacent and have the same start
            end = int(ends[np.searchsorted(ends, at, side="right")])
            slots = self._slots_of(int(owners[at]))
            marked = self.finished_in.get(min(slots)) if len(slots) == 1 and not slots & seen else None
            if marked is not None and (done := int(np.count_nonzero(positions[at:end] < marked))) < end - at:
                finished = at + done
            seen |= slots
            at = end
        return finished

    def _slots_of(self, owner: int) -> set[int]:
        """Return the slots with the marks of a replay, those of its graph if the ring has overwritten it; else none."""
        call = self.of_call.get(self.number[owner])
        if call is not None:
            return {call.graph_slot} if call.state in _REPLAYED and call.graph_slot is not None else set()
        return self.slots.get(int(self.places.graph[owner]), set()) if self.states[owner] == "replayed" else set()

    def _add(self, role: str, launch: int, stream: RingStream | None = None) -> None:
        places = self.places
        owner = int(self.owner[launch])
        self.rows.add(
            "ring_launches",
            log=self.log,
            thread=int(self.thread[owner]),
            role=role,
            launch=int(places.launch_id[launch]),
            graph=self.graph_id(int(places.graph[owner])),
            call=int(places.call_id[owner]),
            site=int(self.site[launch]),
            step=int(places.call_step[owner]),
            returned=bool(self.returned[launch]),
            device=stream.device if stream else None,
            stream=stream.stream if stream else None,
            position=int(self.position[launch]),
        )
