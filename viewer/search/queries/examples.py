"""Statements for the symptoms that people have, as examples of the SQL page."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Example:
    symptom: str
    query: str


EXAMPLES = (
    Example(
        "Where do NaN or infinities appear first?",
        "SELECT v.step, v.launch, s.kernel, a.buffer, v.nan, v.positive_infinity, v.negative_infinity\n"
        "FROM value_rows v JOIN sites s USING (site) LEFT JOIN arguments a USING (site, argument)\n"
        "WHERE v.moment = 'after' AND (v.nan > 0 OR v.positive_infinity > 0 OR v.negative_infinity > 0)\n"
        "ORDER BY v.value LIMIT 100",
    ),
    Example(
        "How does the largest magnitude grow from step to step?",
        "SELECT step, max(largest) AS largest, max(l2) AS l2 FROM value_rows GROUP BY step ORDER BY step",
    ),
    Example(
        "Does memory grow from step to step?",
        "SELECT s.step, max(b.live_bytes) AS peak_bytes, arg_max(b.live_bytes, b.ns) AS bytes_at_end\n"
        "FROM steps s JOIN live_bytes b ON b.log = s.log AND b.ns BETWEEN s.start_ns AND s.end_ns\n"
        "GROUP BY s.step ORDER BY s.step",
    ),
    Example(
        "Which storages were never freed?",
        "SELECT s.device, l.name, l.kind, count(*) AS storages, sum(s.storage_bytes) AS storage_bytes\n"
        "FROM survivors s JOIN layout_storages l USING (layout, storage) WHERE s.died_ns IS NULL\n"
        "GROUP BY ALL ORDER BY storage_bytes DESC LIMIT 100",
    ),
    Example(
        "Which kernels take the most time?",
        "SELECT s.kernel, count(*) AS launches, sum(l.duration_ns) AS total_ns, avg(l.duration_ns) AS mean_ns,\n"
        "       sum(l.device_duration_ns) AS device_ns\n"
        "FROM launches l JOIN sites s USING (site) GROUP BY s.kernel ORDER BY total_ns DESC LIMIT 50",
    ),
    Example(
        "What ran in a step, as a timeline?",
        "SELECT l.launch, s.kernel, l.thread, l.start_ns, l.duration_ns\n"
        "FROM launches l JOIN sites s USING (site) WHERE l.step = 1 ORDER BY l.launch LIMIT 1000",
    ),
    Example(
        "How long did each step take?",
        "SELECT step, duration_ns, compile_ns, launches FROM steps ORDER BY log, step",
    ),
    Example(
        "Why was it compiled again?",
        "SELECT log, compile_id, frame, recompile_reason FROM compiles\n"
        "WHERE recompile_reason IS NOT NULL ORDER BY compile LIMIT 100",
    ),
    Example(
        "Which compiles took longest?",
        "SELECT compile_id, frame, cache, start_unix_ns, duration_ns FROM compiles ORDER BY duration_ns DESC LIMIT 20",
    ),
    Example(
        "Where do graphs break?",
        "SELECT file, line, code, cause, count(*) AS breaks FROM compile_events\n"
        "WHERE kind = 'graph_break' GROUP BY ALL ORDER BY breaks DESC",
    ),
    Example(
        "What differs between ranks?",
        "SELECT kind, stage, compile_id, count(DISTINCT digest) AS versions, count(DISTINCT log) AS ranks\n"
        "FROM rank_facts GROUP BY ALL HAVING count(DISTINCT digest) > 1 ORDER BY versions DESC LIMIT 100",
    ),
    Example(
        "What could not be recorded?",
        "SELECT what, why, sum(count) AS times FROM not_recorded GROUP BY ALL ORDER BY times DESC",
    ),
)
