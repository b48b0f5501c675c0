"""Writes `stepscope export --to chrome`, the Trace Event Format that Perfetto and chrome://tracing open.

Each log is a process, and each of its threads a row. Times are in microseconds since the first event of any log.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Iterator
from gzip import GzipFile
from pathlib import PurePath
from typing import Any, BinaryIO

import orjson

from stepscope.viewer.exports.formats import Wanted, opened
from stepscope.viewer.exports.queries import chrome as queries
from stepscope.viewer.exports.queries.chrome import ExportedClock, SiteName
from stepscope.viewer.store.trace import Trace

Event = dict[str, Any]
_JOINED = 2_000
"""Number of events that are written to the file at once."""
_ROWS = {
    "steps": "steps{}", "spans": "compile{}", "calls": "thread{}",
    "device": "device work of thread{} (starts estimated)",
}  # fmt: skip


def export(trace: Trace, wanted: Wanted) -> int:
    """Write the timeline, compressed if the file name ends in .gz, and return the number of events."""
    with opened(wanted.path) as out:
        if wanted.path.suffix != ".gz":
            return write(trace, out)
        with gzip.GzipFile(filename="", mode="wb", fileobj=out, mtime=0, compresslevel=6) as packed:
            return write(trace, packed)


def write(trace: Trace, out: BinaryIO | GzipFile) -> int:
    """Write the trace to `out` as it is read, and return the number of events."""
    clocks = queries.log_clocks(trace)
    zero_ns = min((clock.first_unix_ns for clock in clocks if clock.first_unix_ns is not None), default=0)
    about = {"made_by": "stepscope", "unix_ns_at_0": str(zero_ns)}
    out.write(b'{"displayTimeUnit":"ns","otherData":' + orjson.dumps(about) + b',"traceEvents":[')
    count, waiting = 0, []
    for clock in clocks:
        for event in _Log(trace, clock, zero_ns).events():
            waiting.append((b",\n" if count else b"\n") + orjson.dumps(event))
            count += 1
            if len(waiting) == _JOINED:
                out.writelines(waiting)
                waiting.clear()
    out.writelines(waiting)
    out.write(b"\n]}\n")
    return count


class _Log:
    """The events of one log, with small thread numbers because viewers do not accept 64-bit ones."""

    def __init__(self, trace: Trace, clock: ExportedClock, zero_ns: int) -> None:
        self._trace, self._clock = trace, clock
        self._pid = clock.log + 1
        self._zero_unix_ns, self._zero_ns = zero_ns, zero_ns - clock.offset_ns
        self._rows: dict[tuple[str, int], int] = {}
        self._sites: dict[int, SiteName] = {}

    def events(self) -> Iterator[Event]:
        yield from self._names()
        yield from self._steps()
        yield from self._compiles()
        self._sites = queries.site_names(self._trace, self._clock.log)
        yield from self._host()
        yield from self._device()
        yield from self._live_bytes()

    def _names(self) -> Iterator[Event]:
        clock = self._clock
        rank = None if clock.rank is None else f"rank {clock.rank}"
        pid = None if clock.pid is None else f"pid {clock.pid}"
        yield self._meta("process_name", name=_joined([rank, pid, PurePath(clock.path).name]))
        yield self._meta("process_sort_index", sort_index=clock.log if clock.rank is None else clock.rank)
        if not clock.is_known:
            yield self._meta("process_labels", labels="clock not recorded: begins with the log's first record")
        threads = queries.threads(self._trace, clock.log)
        for what, title in _ROWS.items():
            for thread in threads[what]:
                row = self._rows[what, thread] = len(self._rows) + 1
                is_only = what in ("steps", "spans") and len(threads[what]) == 1
                yield self._meta("thread_name", row, name=title.format("" if is_only else f" {thread}"))
                yield self._meta("thread_sort_index", row, sort_index=row)

    def _meta(self, kind: str, row: int = 0, **arguments: Any) -> Event:
        return {"ph": "M", "name": kind, "pid": self._pid, "tid": row, "args": arguments}

    def _steps(self) -> Iterator[Event]:
        for step in queries.steps(self._trace, self._clock.log):
            about = {"step": step.step, "kind": step.kind, "ended": None if step.has_end else "not seen"}
            since, length = step.start_ns - self._zero_ns, step.end_ns - step.start_ns
            yield self._span(f"step {step.step}", "step", self._rows["steps", 0], since, length, about)

    def _compiles(self) -> Iterator[Event]:
        for span in queries.compile_spans(self._trace, self._clock.log):
            row, since = self._rows["spans", span.thread], span.start_unix_ns - self._zero_unix_ns
            yield self._span(span.name, "compile", row, since, span.duration_ns, {"compile_id": span.compile_id})
        row = next((row for (what, _), row in self._rows.items() if what == "spans"), 0)
        for event in queries.compile_instants(self._trace, self._clock.log):
            place = None if event.file is None else f"{event.file}:{event.line}"
            about = {"compile_id": event.compile_id, "cause": event.cause, "source": place, "record": event.record}
            yield self._instant(event.kind, "compile", row, event.time_unix_ns - self._zero_unix_ns, about)

    def _host(self) -> Iterator[Event]:
        for span in queries.host_spans(self._trace, self._clock.log):
            about: Event
            if span.launch is None:
                name, category = span.label or "", "call"
                about = {"call": span.call, "graph": span.graph, "step": span.step, "launches": span.launches}
                about["state"] = span.state
            else:
                name, category, about = self._launch(span.site, span.launch, span.step)
                about["graph"] = span.graph
            row, since = self._rows["calls", span.thread], span.start_ns - self._zero_ns
            if span.duration_ns is None:
                yield self._instant(name, category, row, since, {**about, "returned": False})
            else:
                yield self._span(name, category, row, since, span.duration_ns, about)

    def _device(self) -> Iterator[Event]:
        """Yield device work, whose start is estimated: at its launch, or after the work before it on its thread."""
        thread, free_ns = None, 0
        for span in queries.device_spans(self._trace, self._clock.log):
            start_ns = max(free_ns, span.host_start_ns) if span.thread == thread else span.host_start_ns
            thread, free_ns = span.thread, start_ns + span.duration_ns
            name, _, about = self._launch(span.site, span.launch, span.step)
            row = self._rows["device", span.thread]
            yield self._span(name, "device", row, start_ns - self._zero_ns, span.duration_ns, about)

    def _launch(self, site: int | None, launch: int, step: int) -> tuple[str, str, Event]:
        found = self._sites.get(-1 if site is None else site)
        name, kind, source = found or ("unknown kernel", None, None)
        return name, "launch", {"launch": launch, "step": step, "kind": kind, "source": source}

    def _live_bytes(self) -> Iterator[Event]:
        for device, ns, size in queries.live_bytes(self._trace, self._clock.log):
            yield {
                "ph": "C", "name": f"live bytes {device}", "cat": "memory", "pid": self._pid,
                "ts": (ns - self._zero_ns) / 1000, "args": {"bytes": size},
            }  # fmt: skip

    def _span(self, name: str, category: str, row: int, since_ns: int, length_ns: int, about: Event) -> Event:
        return {
            "ph": "X", "name": name, "cat": category, "pid": self._pid, "tid": row, "ts": since_ns / 1000,
            "dur": max(length_ns, 0) / 1000, "args": _known(about),
        }  # fmt: skip

    def _instant(self, name: str, category: str, row: int, since_ns: int, about: Event) -> Event:
        return {
            "ph": "i", "s": "t", "name": name, "cat": category, "pid": self._pid, "tid": row, "ts": since_ns / 1000,
            "args": _known(about),
        }  # fmt: skip


def _known(about: Event) -> Event:
    return {key: value for key, value in about.items() if value is not None}


def _joined(parts: Iterable[str | None]) -> str:
    return " · ".join(part for part in parts if part)
