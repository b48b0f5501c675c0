"""Writes `stepscope export --to chrome`, the Trace Event Format that Perfetto and chrome://tracing open.

Each log is a process, and each of its threads a row. Times are in microseconds since the first event of any log. Logs
with times of a GPU have the form of PyTorch's profiler (Kineto), so that Holistic Trace Analysis reads them; it expects
a file for each rank, which are written if the output is a folder.
"""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from gzip import GzipFile
from typing import BinaryIO

import orjson

from stepscope.viewer.exports.chrome_log import Event, LogEvents
from stepscope.viewer.exports.formats import Wanted, opened
from stepscope.viewer.exports.queries import chrome as queries
from stepscope.viewer.exports.queries.chrome import ExportedClock
from stepscope.viewer.exports.queries.chrome_devices import RunFacts, run_facts
from stepscope.viewer.store.trace import Trace

_JOINED = 2_000
"""Number of events that are written to the file at once."""


def export(trace: Trace, wanted: Wanted) -> int:
    """Write the timeline, compressed if the file name ends in .gz, and return the number of events. If the output is
    a folder, write a file for each rank."""
    clocks = queries.log_clocks(trace)
    if not wanted.path.is_dir():
        return _write_file(trace, wanted, clocks, clocks)
    return sum(
        _write_file(trace, replace(wanted, path=wanted.path / name), clocks, some)
        for name, some in _by_rank(clocks).items()
    )


def _by_rank(clocks: Sequence[ExportedClock]) -> dict[str, list[ExportedClock]]:
    """Return the logs by file name. Logs without a rank are in the file of the first rank."""
    first = min((clock.rank for clock in clocks if clock.rank is not None), default=0)
    files: defaultdict[str, list[ExportedClock]] = defaultdict(list)
    for clock in clocks:
        files[f"rank_{first if clock.rank is None else clock.rank}.json.gz"].append(clock)
    return files


def _write_file(trace: Trace, wanted: Wanted, clocks: Sequence[ExportedClock], some: Sequence[ExportedClock]) -> int:
    zero_ns = min((clock.first_unix_ns for clock in clocks if clock.first_unix_ns is not None), default=0)
    with opened(wanted.path) as out:
        if wanted.path.suffix != ".gz":
            return _write(trace, out, some, zero_ns)
        with gzip.GzipFile(filename="", mode="wb", fileobj=out, mtime=0, compresslevel=6) as packed:
            return _write(trace, packed, some, zero_ns)


def _write(trace: Trace, out: BinaryIO | GzipFile, clocks: Sequence[ExportedClock], zero_ns: int) -> int:
    """Write the events of some logs to `out` as they are read, and return their number."""
    facts = run_facts(trace)
    logs = [LogEvents(trace, clock, zero_ns, facts[clock.log].devices, len(facts)) for clock in clocks]
    out.write(b"{" + _header(logs, [facts[clock.log] for clock in clocks], zero_ns) + b'"traceEvents":[')
    count, waiting = 0, []
    for log in logs:
        for event in log.events():
            waiting.append((b",\n" if count else b"\n") + orjson.dumps(event))
            count += 1
            if len(waiting) == _JOINED:
                out.writelines(waiting)
                waiting.clear()
    out.writelines(waiting)
    out.write(b"\n]}\n")
    return count


def _header(logs: Sequence[LogEvents], facts: Sequence[RunFacts], zero_ns: int) -> bytes:
    """Return what stands before the events. Readers look for the rank in a line of its own, with a space before it."""
    found: Event = {}
    has_kernels = any(log.kernels for log in logs)
    ranks = {fact.rank: fact.world_size for fact in facts if fact.rank is not None}
    if has_kernels:
        found["schemaVersion"] = 1
        names = max((fact.devices for fact in facts), key=len)
        found["deviceProperties"] = [{"id": number, "name": name} for number, name in enumerate(names)]
    if len(ranks) == 1:
        ((rank, size),) = ranks.items()
        backend = "nccl" if has_kernels else "gloo"  # PyTorch's choice for the device; the log has none
        found["distributedInfo"] = {"backend": backend, "rank": rank, "world_size": rank + 1 if size is None else size}
    if has_kernels:
        found["baseTimeNanoseconds"] = zero_ns
    found["displayTimeUnit"] = "ns"
    found["otherData"] = {"made_by": "stepscope", "unix_ns_at_0": str(zero_ns)}
    if has_kernels:
        timed, launches = (sum(numbers) for numbers in zip(*(log.timed_launches() for log in logs), strict=True))
        found["otherData"]["launches_with_device_times"] = f"{timed} of {launches}"
    return b"".join(f"{json.dumps(key)}: {json.dumps(value)},\n".encode() for key, value in found.items())
