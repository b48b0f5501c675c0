"""Queries one row per log of a trace, by rank, numbering several logs of the same rank."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from stepscope.viewer.memory.queries.run import run_peaks
from stepscope.viewer.overview.queries.runs import list_runs
from stepscope.viewer.ranks.queries.sequences import counted_collectives
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace


@dataclass(frozen=True)
class RankRow:
    """One row per log."""

    log: int
    name: str
    """File name of the log."""
    rank: int | None
    record_rank: int | None
    """Rank in the log's records, which may differ from the one in its file name."""
    pid: int | None
    torch: str | None
    complete: bool | None
    start_unix_ns: int | None
    nth: int
    """Number of the log among the logs of its rank, by time, counted from 1."""
    of: int
    compared: bool
    """Whether it is the last log of its rank with records; earlier ones are from runs that were restarted."""
    records: int
    compiles: int
    graphs: int
    compile_ns: int | None
    hits: int
    misses: int
    bypasses: int
    collectives: int | None
    """Number of compiled collectives without waits; None if the log has no wrapper or schedule."""
    missing_waits: int | None
    """Number of collectives that are not waited for in the same graph, over all graphs."""
    graph_breaks: int
    recompiles: int
    steps: int | None
    step_ns: int | None
    """Median duration of its steps."""
    peak_bytes: int | None
    estimated_ns: float | None
    """Inductor's estimate for running each graph once, in ns."""


def rank_rows(trace: Trace) -> list[RankRow]:
    """Return one row per log, by rank and time, with logs without a rank last."""
    runs = list_runs(trace)
    columns: dict[str, dict[int, Any]] = {
        name: dict(sql.rows(trace, statement))
        for name, statement in {
            "record_rank": "SELECT log, record_rank FROM logs",
            "records": "SELECT log, count(*) FROM records GROUP BY log",
            "compiles": "SELECT log, count(*) FROM compiles GROUP BY log",
            "compile_ns": "SELECT log, CAST(sum(duration_ns) AS BIGINT) FROM compiles GROUP BY log",
            "graphs": "SELECT log, count(*) FROM graphs GROUP BY log",
            "steps": "SELECT log, count(*) FROM steps GROUP BY log",
            "step_ns": "SELECT log, CAST(median(duration_ns) AS BIGINT) FROM steps GROUP BY log",
            "estimated_ns": "SELECT log, sum(estimated_ns) FROM rank_facts WHERE kind = 'tensors' GROUP BY log",
        }.items()
    }
    counted = {
        (log, kind): count
        for log, kind, count in sql.rows(
            trace,
            "SELECT log, cache, count(*) FROM compiles GROUP BY log, cache"
            " UNION ALL SELECT log, kind, count(*) FROM compile_events GROUP BY log, kind",
        )
    }
    peaks: dict[int, int] = {}
    for peak in run_peaks(trace) or ():
        peaks[peak.log] = max(peak.live_bytes, peaks.get(peak.log, 0))
    coded = {log for (log,) in sql.rows(trace, "SELECT DISTINCT log FROM records WHERE event = 'inductor_output_code'")}
    collectives = counted_collectives(trace)
    recorded = {run.log for run in runs if run.writer == "stepscope" and not run.is_left_out}
    rows = []
    for run in runs:
        log, records = run.log, columns["records"].get(run.log, 0)
        known = collectives.get(log, (0, 0) if log in coded else (None, None))
        rows.append(
            RankRow(
                log=log, name=Path(run.path).name, rank=run.rank,
                record_rank=columns["record_rank"].get(log), pid=run.pid, torch=run.torch, complete=run.complete,
                start_unix_ns=run.start_unix_ns, nth=1, of=1,
                compared=run.rank is not None and not run.forked and bool(records), records=records,
                compiles=columns["compiles"].get(log, 0),
                graphs=columns["graphs"].get(log, 0), compile_ns=columns["compile_ns"].get(log),
                hits=counted.get((log, "hit"), 0), misses=counted.get((log, "miss"), 0),
                bypasses=counted.get((log, "bypass"), 0),
                collectives=known[0],
                missing_waits=known[1],
                graph_breaks=counted.get((log, "graph_break"), 0), recompiles=counted.get((log, "recompile"), 0),
                steps=columns["steps"].get(log, 0) if log in recorded else None,
                step_ns=columns["step_ns"].get(log), peak_bytes=peaks.get(log),
                estimated_ns=columns["estimated_ns"].get(log),
            )
        )  # fmt: skip
    return _told_apart(rows)


def _told_apart(rows: Sequence[RankRow]) -> list[RankRow]:
    """Number the logs of each rank; only the last one that compiled anything is compared."""
    by_rank: defaultdict[int | None, list[RankRow]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: (row.start_unix_ns or 0, row.log)):
        by_rank[row.rank].append(row)
    found = []
    for rank in sorted(by_rank, key=lambda rank: (rank is None, rank or 0)):
        same = by_rank[rank]
        last = max(
            (row for row in same if row.compared), key=lambda row: (row.compiles > 0, same.index(row)), default=None
        )
        found += [
            replace(
                row, nth=n if rank is not None else 1, of=len(same) if rank is not None else 1, compared=row is last
            )
            for n, row in enumerate(same, 1)
        ]
    return found
