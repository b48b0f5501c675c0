"""Reads all logs of a trace into the rows of the index."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial

from stepscope.tracer.schema.constants import ARTIFACT_PREFIX
from stepscope.viewer.errors import StepscopeError
from stepscope.viewer.ingest.clock import LogClock, clock_of
from stepscope.viewer.ingest.damage import Damage
from stepscope.viewer.ingest.lenient_json import dumps
from stepscope.viewer.ingest.log_bytes import log_bytes
from stepscope.viewer.ingest.reader import LogRecord, read_records
from stepscope.viewer.ingest.record_columns import RecordColumns
from stepscope.viewer.ingest.record_headers import RecordHeader
from stepscope.viewer.ingest.recorder.run_facts import NewerFormat
from stepscope.viewer.ingest.recorder.runtime_records import RuntimeRecords
from stepscope.viewer.ingest.rows import IndexRows, without_collection
from stepscope.viewer.ingest.sources import Source
from stepscope.viewer.ingest.torch_trace.kinds import KNOWN_EVENTS, UNKNOWN_PREFIX
from stepscope.viewer.ingest.torch_trace.rank_facts import RankFacts, rank_in_name
from stepscope.viewer.ingest.torch_trace.torch_events import StringTable, TorchEvents
from stepscope.viewer.ingest.watch import tell

MOST_UNKNOWN = 50
AT_ONCE_BYTES = 1 << 23
"""Total size of the logs above which numpy saves more time than its import takes."""
_MOST_KINDS = 1000
Reader = Callable[[LogRecord], None]
Relatives = Callable[[int | None], Sequence[StringTable]]


@dataclass
class _Log:
    """One log while a trace is being read."""

    number: int
    source: Source
    damage: Damage
    torch: TorchEvents
    runtime: RuntimeRecords
    ranks: RankFacts
    clock: LogClock | None = None
    pid: int | None = None
    rank: int | None = None
    first_time_ns: int | None = None
    has_records: bool = False
    newer: NewerFormat | None = None
    """Set if the log has a newer format; it is then read only up to its run record."""

    @property
    def writer(self) -> str | None:
        """Program that wrote the log; None if it has no record."""
        return None if not self.has_records else "stepscope" if self.runtime.run.is_ours else "torch"


def read_logs(
    sources: Sequence[Source],
    *,
    first_log: int = 0,
    first_id: int = 0,
    relatives: Relatives | None = None,
    left_out: list[NewerFormat] | None = None,
) -> IndexRows:
    """Read all logs into rows. Logs are numbered from `first_log` in the order of `sources`; ids begin at `first_id`.

    `relatives` returns the string tables of logs outside `sources` from whose processes a log's process may have been
    forked, given the id of its parent process or None. A log of a newer format is left out and appended to `left_out`.
    If that is None and no other log has records, StepscopeError is raised.
    """
    with without_collection():
        return _read_logs(sources, first_log, first_id, relatives, left_out)


def _read_logs(
    sources: Sequence[Source],
    first_log: int,
    first_id: int,
    relatives: Relatives | None,
    left_out: list[NewerFormat] | None,
) -> IndexRows:
    rows, unknown = IndexRows(first_id), Counter[str]()
    total, before, logs = sum(source.size for source in sources), 0, list[_Log]()
    for number, source in enumerate(sources, first_log):
        logs.append(_read_log(number, source, rows, unknown, total >= AT_ONCE_BYTES, _Passed(before, total)))
        before += source.size
    newer = [log.newer for log in logs if log.newer is not None]
    if left_out is not None:
        left_out += newer
    elif newer and not any(log.has_records and log.newer is None for log in logs):
        raise newer[0]
    for log in logs:
        log.torch.logs_breaks |= log.runtime.run.is_ours
        with log.damage.contained("compiles"):
            log.torch.finish(_inherited(log, logs, relatives))
        log.runtime.finish(log.torch.output_codes, log.torch.callers, log.torch.compiling(), log.torch.updates)
        with log.damage.contained("the data by which ranks are compared"):
            log.ranks.finish()
        _add_log(rows, log)
    for event, count in unknown.most_common(MOST_UNKNOWN):
        rows.add("meta", key=UNKNOWN_PREFIX + event, value=str(count))
    return rows


@dataclass(frozen=True)
class _Passed:
    """Tells how many bytes of all logs were read, given those of the current log."""

    before: int
    total: int

    def __call__(self, byte: int) -> None:
        done = self.before + byte
        tell(f"reading {done / 1e6:,.0f} of {self.total / 1e6:,.0f} MB of logs", done, self.total)


def _read_log(
    number: int, source: Source, rows: IndexRows, unknown: Counter[str], at_once: bool, passed: _Passed
) -> _Log:
    damage, columns = Damage(), RecordColumns()
    torch = TorchEvents(number, rows, damage)
    runtime = RuntimeRecords(number, source.path, rows, damage, torch.ids, source.ring)
    log = _Log(number, source, damage, torch, runtime, RankFacts(number, rows, damage))
    for reason, problem in source.problems:
        damage.add(reason, problem)
    if source.size == 0:
        if not source.problems:
            damage.add("empty_file", "the file is empty")
        return log
    try:
        with log_bytes(source.data_path, source.size) as data:
            log.clock = clock_of(data, source.mtime_ns)
            first = rows.new_id("records", 0)
            records = read_records(data, damage, log.clock, columns, first, at_once=at_once, passed=passed)
            _take_records(log, records, unknown)
    except OSError as error:
        damage.add("not_read", error.strerror or str(error))
    except NewerFormat as error:
        log.newer = error
        damage.add("newer_format", error.reason)
    log.has_records = len(columns) > 0
    if runtime.run.is_ours and not runtime.run.is_whole and log.newer is None:
        damage.add("no_run_record", "the program, the time and the recording settings are unknown")
    columns.rename(rows.new_id("records", 0), torch.ids.since)
    columns.assign(rows.new_id("records", 0), runtime.compiles_of_records(torch.compiles))
    columns.finish(rows, number, at_once)
    if not log.has_records and not damage.counts["not_read"]:
        damage.add("not_a_log", "no line of this file begins a record")
    return log


def _take_records(log: _Log, records: Iterable[LogRecord], unknown: Counter[str]) -> None:
    """Pass each record to its readers. Chromium events are by far the most frequent and share their headers, so what
    is the same for all records of a header is done once."""
    header: RecordHeader | None = None
    renamed: RecordHeader | None = None
    readers: Sequence[Reader] = ()
    ids = log.torch.ids
    readers_of = lru_cache(_MOST_KINDS)(partial(_readers_of, log, unknown))
    for record in records:
        try:
            if record.header is not header or ids.changed:
                if header is None:
                    log.pid, log.first_time_ns = record.pid, record.time_ns
                header, renamed, ids.changed = record.header, ids.other_header(record), False
                readers = readers_of(header.event, header.name)
                if header.compile_id is not None:
                    log.torch.note_attempt(record if renamed is None else record._replace(header=renamed))
            if renamed is not None:
                record = record._replace(header=renamed)
            if header.pid != log.pid or (header.rank is not None and header.rank != log.rank):
                _check_origin(log, record)
            for reader in readers:
                reader(record)
        except StepscopeError:
            raise
        except Exception as error:
            text = f"{record.name or record.event}: {type(error).__name__}: {error}"
            log.damage.add("not_understood", text, record.line, record.byte)


def _readers_of(log: _Log, unknown: Counter[str], event: str, name: str | None) -> Sequence[Reader]:
    """Return what reads records with this event and name, in its order."""
    readers: list[Reader | None] = [*log.torch.readers_of(event, name)]
    if event not in KNOWN_EVENTS:
        readers.insert(0, lambda record: unknown.update([record.event[:100]]))
    if event == "artifact" and (name or "").startswith(ARTIFACT_PREFIX):
        readers.append(log.runtime.read)
    else:
        readers.append(log.ranks.reader_of(event, name))
    return [reader for reader in readers if reader is not None]


def _check_origin(log: _Log, record: LogRecord) -> None:
    """Count records whose process or rank differs from that of the first record."""
    rank, place = record.header.rank, record.place
    if log.pid is None:
        log.pid = record.pid
    elif record.pid != log.pid and record.pid is not None:
        log.damage.add("mixed_processes", f"process {record.pid} in a log of {log.pid}", *place)
    if rank is not None and log.rank is None:
        log.rank = rank
    elif rank is not None and rank != log.rank:
        log.damage.add("mixed_ranks", f"rank {rank} in a log of rank {log.rank}", *place)


def _inherited(log: _Log, logs: Sequence[_Log], relatives: Relatives | None) -> list[StringTable]:
    """Return the string tables that the stacks of `log` may refer to: those of processes it may be forked from."""
    parent_pid = log.runtime.run.said.get("parent_pid")
    parents = [other for other in logs if parent_pid is not None and other.pid == parent_pid]
    others = relatives(parent_pid) if relatives else []
    return [*(other.torch.strings for other in parents or logs if other is not log), *others]


def _rank(log: _Log) -> int | None:
    """Return the rank in the run record, else in the log's name, else in a record; early ones may have none."""
    said, named = log.runtime.run.said.get("rank"), rank_in_name(log.source.path)
    if said is not None:
        return int(said)
    return log.rank if named is None else named


def _add_log(rows: IndexRows, log: _Log) -> None:
    runtime, source = log.runtime, log.source
    run, (monotonic_ns, unix_ns) = runtime.run.said, runtime.run.clocks() or (None, None)
    is_read = runtime.run.is_ours and log.newer is None
    rows.add(
        "logs",
        log=log.number,
        path=os.fsencode(source.path).decode("utf-8", "replace"),
        size_bytes=source.size,
        rank=_rank(log),
        world_size=run.get("world_size"),
        pid=run.get("pid", log.pid),
        format_version=log.newer.version if log.newer else run.get("format_version"),
        complete=runtime.end is not None or runtime.ring.has_ended if is_read else None,
        device_error=runtime.end.device_error if runtime.end else None,
        monotonic_ns=monotonic_ns,
        unix_ns=unix_ns,
        utc_offset_s=log.clock.utc_offset_s if log.clock else None,
        start_unix_ns=run.get("unix_ns", log.first_time_ns),
        torch_version=run.get("torch_version", log.torch.torch_version),
        run=dumps(run) if run else None,
        record_rank=log.rank,
        writer=log.writer,
    )
    for line, byte, reason, problem in log.damage.places:
        rows.add("problems", log=log.number, line=line, byte=byte, reason=reason, text=problem)
    for reason, count in log.damage.counts.items():
        rows.add("problem_counts", log=log.number, reason=reason, count=count)
