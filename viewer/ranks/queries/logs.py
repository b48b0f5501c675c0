"""Queries one row per log of a trace, by rank, numbering several logs of the same rank."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from stepscope.viewer.memory.queries.run import run_peaks
from stepscope.viewer.overview.queries.runs import list_runs
from stepscope.viewer.ranks.queries.sequences import counted_collectives
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

_FACTS = """
    SELECT l.log, l.record_rank, coalesce(r.records, 0) AS records, coalesce(c.compiles, 0) AS compiles, c.compile_ns,
           coalesce(c.hits, 0) AS hits, coalesce(c.misses, 0) AS misses, coalesce(c.bypasses, 0) AS bypasses,
           coalesce(g.graphs, 0) AS graphs, coalesce(e.graph_breaks, 0) AS graph_breaks,
           coalesce(e.recompiles, 0) AS recompiles, coalesce(s.steps, 0) AS steps, s.step_ns, t.estimated_ns
    FROM logs l LEFT JOIN (SELECT log, count(*) AS records FROM records GROUP BY log) r ON r.log = l.log
    LEFT JOIN (SELECT log, count(*) AS compiles, sum(duration_ns)::BIGINT AS compile_ns,
                      count(*) FILTER (cache = 'hit') AS hits, count(*) FILTER (cache = 'miss') AS misses,
                      count(*) FILTER (cache = 'bypass') AS bypasses FROM compiles GROUP BY log) c ON c.log = l.log
    LEFT JOIN (SELECT log, count(*) AS graphs FROM graphs GROUP BY log) g ON g.log = l.log
    LEFT JOIN (SELECT log, count(*) FILTER (kind = 'graph_break') AS graph_breaks,
                      count(*) FILTER (kind = 'recompile') AS recompiles FROM compile_events GROUP BY log) e
      ON e.log = l.log
    LEFT JOIN (SELECT log, count(*) AS steps, median(duration_ns)::BIGINT AS step_ns FROM steps GROUP BY log) s
      ON s.log = l.log
    LEFT JOIN (SELECT log, sum(estimated_ns) AS estimated_ns FROM rank_facts WHERE kind = 'tensors' GROUP BY log) t
      ON t.log = l.log
"""


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
    facts = {row.pop("log"): row for row in sql.named(trace, _FACTS)}
    peaks: dict[int, int] = {}
    for peak in run_peaks(trace) or ():
        peaks[peak.log] = max(peak.live_bytes, peaks.get(peak.log, 0))
    coded = {log for (log,) in sql.rows(trace, "SELECT DISTINCT log FROM records WHERE event = 'inductor_output_code'")}
    collectives = counted_collectives(trace)
    recorded = {run.log for run in runs if run.writer == "stepscope" and not run.is_left_out}
    rows = []
    for run in runs:
        log, known = run.log, facts[run.log]
        counted = collectives.get(log, (0, 0) if log in coded else (None, None))
        if log not in recorded:
            known["steps"] = None
        rows.append(
            RankRow(
                log=log, name=Path(run.path).name, rank=run.rank, pid=run.pid, torch=run.torch, complete=run.complete,
                start_unix_ns=run.start_unix_ns, nth=1, of=1,
                compared=run.rank is not None and not run.forked and bool(known["records"]),
                collectives=counted[0], missing_waits=counted[1], peak_bytes=peaks.get(log), **known,
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
