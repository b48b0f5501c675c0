"""Makes the events of one log for a Chrome trace."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePath
from typing import Any

from stepscope.viewer.exports import chrome_device as device
from stepscope.viewer.exports.queries import chrome as queries
from stepscope.viewer.exports.queries.chrome import ExportedClock, HostSpan
from stepscope.viewer.exports.queries.chrome_devices import timed_kernels
from stepscope.viewer.store.trace import Trace

Event = dict[str, Any]
_ROWS = {"steps": "steps{}", "spans": "compile{}", "calls": "thread{}"}
_MOST_MODULES = 8


class LogEvents:
    """The events of one log, with small numbers of threads because viewers do not accept 64-bit ones."""

    def __init__(self, trace: Trace, clock: ExportedClock, zero_ns: int, devices: Sequence[str], logs: int) -> None:
        self._trace, self._clock, self._logs = trace, clock, logs
        self._pid = clock.log + 1
        self._zero_unix_ns, self._zero_ns = zero_ns, zero_ns - clock.offset_ns
        self._rows: dict[tuple[str, int], int] = {}
        self._sites = queries.site_names(trace, clock.log)
        placements = timed_kernels(trace, clock.log, bool(devices))
        self.kernels = {site: device.kernel_of(self._sites[site], at) for site, at in placements.items()}
        """Device work of the sites that ran on a GPU and whose times on it are known. If there are none, the events
        are those of the host."""

    def timed_launches(self) -> tuple[int, int]:
        """Return the number of launches whose time on the device is known, and of all."""
        return queries.timed_launches(self._trace, self._clock.log)

    def events(self) -> Iterator[Event]:
        yield from self._names()
        yield from self._steps()
        yield from self._compiles()
        yield from self._host()
        yield from self._on_host()
        yield from self._on_streams()
        yield from self._profiled()
        yield from self._live_bytes()

    def _names(self) -> Iterator[Event]:
        clock = self._clock
        rank = None if clock.rank is None else f"rank {clock.rank}"
        pid = None if clock.pid is None else f"pid {clock.pid}"
        order = clock.log if clock.rank is None else clock.rank
        yield self._meta("process_name", name=_joined([rank, pid, PurePath(clock.path).name]))
        yield self._meta("process_sort_index", sort_index=order)
        if not clock.is_known:
            yield self._meta("process_labels", labels="clock not recorded: begins with the log's first record")
        threads = queries.threads(self._trace, clock.log, list(self.kernels))
        for what, title in {**_ROWS, "device": "device work of thread{} (starts estimated)"}.items():
            for thread in threads[what]:
                row = self._rows[what, thread] = len(self._rows) + 1
                is_only = what in ("steps", "spans") and len(threads[what]) == 1
                yield from self._row(row, title.format("" if is_only else f" {thread}"))
        named: set[int] = set()
        for number, stream, title in device.streams(self.kernels, queries.profiled_streams(self._trace, clock.log)):
            if number not in named:
                gpu = self._device_pid(number)
                yield self._meta("process_name", pid=gpu, name=_joined([rank, pid, f"GPU {number}"]))
                yield self._meta("process_labels", pid=gpu, labels=f"GPU {number}")
                yield self._meta("process_sort_index", pid=gpu, sort_index=self._logs * (1 + number) + order)
                named.add(number)
            yield from self._row(stream, title, self._device_pid(number))

    def _row(self, row: int, name: str, pid: int | None = None) -> Iterator[Event]:
        yield self._meta("thread_name", row, pid, name=name)
        yield self._meta("thread_sort_index", row, pid, sort_index=row)

    def _meta(self, kind: str, row: int = 0, pid: int | None = None, **arguments: Any) -> Event:
        return {"ph": "M", "name": kind, "pid": self._pid if pid is None else pid, "tid": row, "args": arguments}

    def _device_pid(self, number: int) -> int:
        return self._pid + self._logs * (1 + number)

    def _steps(self) -> Iterator[Event]:
        for step in queries.steps(self._trace, self._clock.log):
            about = {"step": step.step, "kind": step.kind, "ended": None if step.has_end else "not seen"}
            since, length = step.start_ns - self._zero_ns, step.end_ns - step.start_ns
            name, category = f"step {step.step}", "step"
            if self.kernels:
                name, category = f"ProfilerStep#{step.step}", "user_annotation"
            yield self._span(name, category, self._rows["steps", 0], since, length, about)

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
            if self.kernels:
                category = "cpu_op"
            row, since = self._rows["calls", span.thread], span.start_ns - self._zero_ns
            if span.duration_ns is None:
                yield self._instant(name, category, row, since, {**about, "returned": False})
                continue
            yield self._span(name, category, row, since, span.duration_ns, about)
            runtime = self._runtime(span)
            if runtime is not None:
                number = device.correlation(span.launch, span.call)
                ids = {"External id": number, "correlation": number}
                yield self._span(runtime, "cuda_runtime", row, since, span.duration_ns, ids)

    def _runtime(self, span: HostSpan) -> str | None:
        """Return the function of the driver that started known device work in the span."""
        if not span.is_timed:
            return None
        if span.launch is None:
            return "cudaGraphLaunch" if self.kernels else None
        kernel = self.kernels.get(-1 if span.site is None else span.site)
        return kernel.runtime if kernel else None

    def _on_host(self) -> Iterator[Event]:
        """Yield the measured work that did not run on a GPU."""
        for span, start_ns in device.on_host(queries.device_spans(self._trace, self._clock.log), self.kernels):
            name, _, about = self._launch(span.site, span.launch, span.step)
            row = self._rows["device", span.thread]
            yield self._span(name, "device", row, start_ns - self._zero_ns, span.duration_ns, about)

    def _on_streams(self) -> Iterator[Event]:
        for work in device.on_streams(queries.device_spans(self._trace, self._clock.log), self.kernels):
            span, kernel = work.span, work.kernel
            name, _, about = self._launch(span.site, span.launch, span.step)
            about = {**device.arguments(work), "kernel": None if name == kernel.name else name, **about}
            since, pid = work.start_ns - self._zero_ns, self._device_pid(kernel.device)
            yield self._span(kernel.name, kernel.category, kernel.stream, since, span.duration_ns, about, pid)

    def _profiled(self) -> Iterator[Event]:
        """Yield the work that PyTorch's profiler saw."""
        for span in queries.profiled_spans(self._trace, self._clock.log):
            about: Event = {**device.profiled_arguments(span), "step": span.step}
            if span.launch is not None and span.step is not None:
                name, _, of_launch = self._launch(span.site, span.launch, span.step)
                about |= {"kernel": None if name == span.name else name, **of_launch}
            since, pid, category = (
                span.start_ns - self._zero_ns,
                self._device_pid(span.device),
                device.profiled_category(span),
            )
            yield self._span(span.name, category, span.stream, since, span.duration_ns, about, pid)

    def _launch(self, site: int | None, launch: int, step: int) -> tuple[str, str, Event]:
        found = self._sites.get(-1 if site is None else site)
        if found is None:
            return "unknown kernel", "launch", {"launch": launch, "step": step}
        module = ", ".join(found.modules[:_MOST_MODULES]) or None
        about = {"launch": launch, "step": step, "kind": found.kind, "source": found.source, "module": module}
        return found.kernel, "launch", about

    def _live_bytes(self) -> Iterator[Event]:
        for name, ns, size in queries.live_bytes(self._trace, self._clock.log):
            yield {
                "ph": "C", "name": f"live bytes {name}", "cat": "memory", "pid": self._pid,
                "ts": (ns - self._zero_ns) / 1000, "args": {"bytes": size},
            }  # fmt: skip

    def _span(
        self, name: str, category: str, row: int, since_ns: int, length_ns: int, about: Event, pid: int | None = None
    ) -> Event:
        return {
            "ph": "X", "name": name, "cat": category, "pid": self._pid if pid is None else pid, "tid": row,
            "ts": since_ns / 1000, "dur": max(length_ns, 0) / 1000, "args": _known(about),
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
