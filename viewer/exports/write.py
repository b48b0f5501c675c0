"""`stepscope export`: tables as CSV or Parquet, storages as PyTorch's memory viewer reads them, the timeline for
Perfetto, payloads as they are."""

from __future__ import annotations

import gzip
import pickle
import shutil
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Literal, get_args

from stepscope.viewer.errors import StepscopeError
from stepscope.viewer.exports.queries import tables as queries
from stepscope.viewer.ingest.lenient_json import loads
from stepscope.viewer.memory.queries.graph_index import graph_places, label_of
from stepscope.viewer.search.queries.tables import list_tables
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.text.byte_range import byte_range

Form = Literal["csv", "parquet", "memory_snapshot", "chrome", "raw"]
FORMS: tuple[Form, ...] = get_args(Form)
STDOUT = Path("-")
_ALIGNED = 512
_SUFFIX = {"csv": ".csv", "parquet": ".parquet"}
_COUNTED = {"memory_snapshot": "storages", "chrome": "events", "raw": "bytes"}


def export(
    trace: Trace, form: str, table: str, out: Path | None, record: int | None = None, part: str | None = None
) -> tuple[Path, int]:
    """Write `table`, the storages, the timeline, or the payload of `record`; returns the file and how many rows,
    storages, events or bytes are in it. `part` is a range of bytes of the payload, as `byte_range` takes it.

    Raises StepscopeError for a form, table or record that there is not, and where the file cannot be written.
    """
    if form not in FORMS:
        raise StepscopeError(f"--to {form} is not known; there are: {', '.join(FORMS)}")
    path = out or _usual_name(form, table)
    _refuse(trace, form, path)
    try:
        if form == "chrome":
            return path, _write_chrome(trace, path)
        if form == "raw":
            return path, _write_raw(trace, record, part, path)
        if form == "memory_snapshot":
            return path, _write_snapshot(trace, path)
        names = queries.tables(trace)
        if table not in names:
            raise StepscopeError(f"--table {table} is not known; there are: {', '.join(names)}")
        return path, _write_table(trace, table, path, "parquet" if form == "parquet" else "csv")
    except BrokenPipeError:
        raise
    except OSError as error:
        raise StepscopeError(f"cannot write {path}: {error.strerror or error}") from None


def counted(form: str) -> str:
    """What the number that `export` returns is of."""
    return _COUNTED.get(form, "rows")


def filled_tables(trace: Trace) -> list[str]:
    """Tables that have rows in this trace."""
    return [row.name for row in list_tables(trace) if row.rows]


def _usual_name(form: str, table: str) -> Path:
    named = {"memory_snapshot": Path("memory_snapshot.pickle"), "chrome": Path("trace.json"), "raw": STDOUT}
    return named.get(form) or Path(table + _SUFFIX[form])


def _refuse(trace: Trace, form: str, path: Path) -> None:
    """What would do harm: a trace that is written over, a program's bytes that drive a terminal."""
    if path == STDOUT:
        if form == "memory_snapshot":
            raise StepscopeError(f"--to {form} writes a file and not to standard output: name one with -o.")
        if form in ("raw", "parquet", "csv") and sys.stdout.isatty():
            raise StepscopeError("Bytes are not shown in a terminal as they are: name a file with -o, or pipe them.")
        return
    if any(path.resolve() == file.resolve() for file in trace.own_files):
        raise StepscopeError(f"-o {path} is a file of the trace itself: name another one.")


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    """The file, or standard output."""
    if path == STDOUT:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    with path.open("wb") as file:
        yield file


def _write_table(trace: Trace, table: str, path: Path, form: Literal["csv", "parquet"]) -> int:
    if path != STDOUT:
        return queries.write_table(trace, table, path, form)
    file, count = queries.table_file(trace, table, form)
    with file, _opened(path) as out:
        shutil.copyfileobj(file, out)
    return count


def _write_chrome(trace: Trace, path: Path) -> int:
    from stepscope.viewer.exports import chrome_trace

    with _opened(path) as out:
        if path.suffix != ".gz":
            return chrome_trace.write(trace, out)
        with gzip.GzipFile(filename="", mode="wb", fileobj=out, mtime=0, compresslevel=6) as packed:
            return chrome_trace.write(trace, packed)


def _write_raw(trace: Trace, record: int | None, part: str | None, path: Path) -> int:
    if record is None:
        raise StepscopeError("--to raw needs --record ID; `--to csv --table records` lists them.")
    size, most = queries.payload_size(trace, record)
    if size is None:
        problem = "is not there" if most is None or not 0 <= record <= most else "has no payload"
        raise StepscopeError(f"--record {record} {problem}; `--to csv --table records` lists them.")
    payload = trace.whole_payload(record)
    if part is not None:
        payload = payload[_range(part, len(payload))]
    with _opened(path) as out:
        out.write(payload)
    return len(payload)


def _range(part: str, size: int) -> slice:
    try:
        found = byte_range(part, size)
    except ValueError:
        raise StepscopeError(f"--bytes {part} lies outside of the payload, which has {size:,} bytes.") from None
    if found is None:
        raise StepscopeError(
            f"--bytes {part} is no range: 0-99 is the first 100 bytes, 100- the rest, -50 the last 50."
        )
    return found


def _write_snapshot(trace: Trace, path: Path) -> int:
    snapshot = memory_snapshot(trace)
    path.write_bytes(pickle.dumps(snapshot, protocol=4))
    return sum(event["action"] == "alloc" for events in snapshot["device_traces"] for event in events)


def memory_snapshot(trace: Trace) -> dict[str, Any]:
    """What `torch.cuda.memory._snapshot()` returns, made of the storages that compiled calls have met.

    Addresses are made up: each storage has its own. A device's place in `device_traces` is its index; those that
    are no CUDA devices stand behind.
    """
    clocks, frames = queries.clocks(trace), _Frames(trace)
    events: defaultdict[str, list[tuple[int, int, dict[str, Any]]]] = defaultdict(list)
    alive: list[tuple[str, dict[str, Any]]] = []
    address = _ALIGNED
    for row in queries.storages(trace):
        place = {"addr": address, "size": row.storage_bytes, "stream": 0, "frames": frames.of(row)}
        address += -(-max(row.storage_bytes, 1) // _ALIGNED) * _ALIGNED
        for ns, order, action in _actions(row):
            time_us = (ns + clocks.get(row.log, 0)) // 1000
            events[row.device].append((ns, order, {"action": action, **place, "time_us": time_us}))
        if row.died_ns is None:
            alive.append((row.device, place))
    devices = _ordered(events)
    traces = [[event for _, _, event in sorted(events.get(device, ()), key=lambda one: one[:2])] for device in devices]
    segments = [_segment(devices.index(device), place) for device, place in alive]
    return {"segments": segments, "device_traces": traces, "allocator_settings": {}, "external_annotations": []}


def _actions(row: queries.StorageRow) -> list[tuple[int, int, str]]:
    """(ns, order within a moment, action): what dies makes room before anything is born, unless it was born there."""
    found = [(row.born_ns, 1, "alloc")]
    if row.died_ns is not None:
        order = 2 if row.died_ns == row.born_ns else 0
        found += [(row.died_ns, order, "free_requested"), (row.died_ns, order, "free_completed")]
    return found


def _ordered(found: dict[str, Any]) -> list[str]:
    indices = [int(name[5:]) for name in found if name.startswith("cuda:") and name[5:].isdigit() and len(name) < 9]
    cuda = [f"cuda:{i}" for i in range(max(indices, default=-1) + 1)]
    return [*cuda, *sorted(name for name in found if name not in cuda)]


def _segment(device: int, place: dict[str, Any]) -> dict[str, Any]:
    size, frames = place["size"], place["frames"]
    block = {
        "address": place["addr"], "size": size, "requested_size": size, "state": "active_allocated", "frames": frames,
    }  # fmt: skip
    return {
        "device": device, "address": place["addr"], "total_size": size, "allocated_size": size, "active_size": size,
        "requested_size": size, "stream": 0, "segment_type": "large", "segment_pool_id": (0, 0),
        "is_expandable": False, "frames": frames, "blocks": [block],
    }  # fmt: skip


class _Frames:
    """What stands for the stack of an allocation: the buffer and its kernel, then lines of the model, innermost
    first."""

    def __init__(self, trace: Trace) -> None:
        self._trace, self._stacks = trace, queries.stacks(trace)
        self._known: dict[tuple[int, str, int | None, str], list[dict[str, Any]]] = {}

    def of(self, row: queries.StorageRow) -> list[dict[str, Any]]:
        key = row.graph, row.name, row.site, row.kind
        if key not in self._known:
            self._known[key] = self._read(row)
        return self._known[key]

    def _read(self, row: queries.StorageRow) -> list[dict[str, Any]]:
        places, label = graph_places(self._trace, row.graph), label_of(self._trace, row.graph)
        site = None if row.kind == "input" else places.writer(row.name, row.site)
        kernel = places.kernel(site)
        name = f"{row.name} ({kernel or row.kind})"
        own = {"filename": f"graph {row.graph}: {label}", "line": 0, "name": name}
        stacks = loads(self._stacks.get(site, "[]").encode()) if site is not None else []
        lines: list[dict[str, Any]] = next((stack for stack in stacks if stack), [])
        model = [{"filename": f["file"], "line": f["line"], "name": _named(f)} for f in reversed(lines)]
        return [own, *model]


def _named(line: dict[str, Any]) -> str:
    """The function. The pages that show such a file have no other place that could say that its line has changed."""
    changed = line.get("as_compiled")
    return f"{line['function']} ({changed})" if changed else str(line["function"])
