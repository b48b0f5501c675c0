"""Queries the tables of the index for export, and a table of all storages with their origins."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple

import duckdb

from stepscope.viewer.graphs.queries.program_names import program_names
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

STORAGES = "storages"
"""Name of the table with one row per storage and call, which the index stores as shared layouts."""
_STORAGES = """
    SELECT m.log, m.call, s.storage, m.step, l.graph, l.function, s.name, s.kind, s.storage_bytes,
           coalesce(s.device, 'unknown') AS device,
           CASE WHEN s.kind = 'input' THEN c.start_ns ELSE coalesce(b.start_ns, c.start_ns + greatest(c.duration_ns, 0))
                END AS born_ns,
           s.born AS born_position, b.launch AS born_launch,
           CASE WHEN s.dead IS NULL THEN v.died_ns
                ELSE greatest(coalesce(d.start_ns, c.start_ns + greatest(c.duration_ns, 0)), born_ns) END AS died_ns,
           CASE WHEN s.dead IS NULL THEN v.died_call ELSE m.call END AS died_call,
           coalesce(s.dead, v.died_position) AS died_position, s.site, n.program
    FROM measured_calls m JOIN layouts l ON l.layout = m.layout JOIN calls c ON c.call = m.call
    JOIN layout_storages s ON s.layout = m.layout AND s.met_as IS NULL
    LEFT JOIN places b ON b.call = m.call AND b.position = s.born
    LEFT JOIN places d ON d.call = m.call AND d.position = s.dead
    LEFT JOIN survivors v ON v.call = m.call AND v.storage = s.storage
    LEFT JOIN (SELECT unnest($graphs::BIGINT[]) AS graph, unnest($names::VARCHAR[]) AS name,
                      unnest($programs::VARCHAR[]) AS program) n ON n.graph = l.graph AND n.name = s.name
"""
_PLACES = """
    WITH places AS (
        SELECT call, launch, start_ns, row_number() OVER (PARTITION BY call ORDER BY launch) - 1 AS position
        FROM launches
    )
"""
_ORDERED = f"{_PLACES} {_STORAGES} ORDER BY m.log, born_ns, m.call, s.storage"
_OPTIONS = {"csv": "FORMAT csv, HEADER", "parquet": "FORMAT parquet"}


class StorageRow(NamedTuple):
    log: int
    call: int
    storage: int
    step: int
    graph: int
    function: str
    name: str
    kind: str
    storage_bytes: int
    device: str
    born_ns: int
    born_position: int
    born_launch: int | None
    died_ns: int | None
    died_call: int | None
    died_position: int | None
    site: int | None
    program: str | None
    """Name in the user's program, such as ``self.layers.3.weight``; None if it has none or it is unknown."""


def tables(trace: Trace) -> list[str]:
    """Return the names of the tables that can be exported."""
    found = sql.rows(trace, "SELECT table_name FROM information_schema.tables WHERE table_catalog = 'trace'")
    return sorted([*(name for (name,) in found), STORAGES])


def storages_columns(trace: Trace) -> list[tuple[str, str]]:
    """Return (name, type) of the columns of `STORAGES`."""
    return [(name, kind) for name, kind, *_ in sql.rows(trace, f"DESCRIBE {_ORDERED}", _columns([]))]


def write_table(trace: Trace, table: str, out: Path, form: Literal["csv", "parquet"]) -> int:
    """Write a table of `tables` to a file and return the number of rows; raise OSError if it cannot be written.

    The connection of the trace is not allowed to write files, so another connection reads the index.
    """
    query, named = (_ORDERED, _program_names(trace)) if table == STORAGES else (f'SELECT * FROM "{table}"', None)
    with trace.unlocked() as connection:
        try:
            done = connection.execute(f"COPY ({query}) TO {_quoted(out)} ({_OPTIONS[form]})", named).fetchone()
        except duckdb.IOException as error:
            raise OSError(str(error)) from None
    return int(done[0]) if done else 0


def table_file(trace: Trace, table: str, form: Literal["csv", "parquet"]) -> tuple[IO[bytes], int]:
    """Write a table to a temporary file and return it with the number of rows, for outputs that cannot seek."""
    with tempfile.TemporaryDirectory(prefix="stepscope-", ignore_cleanup_errors=True) as folder:
        path = Path(folder, "table")
        count = write_table(trace, table, path, form)
        return path.open("rb"), count


def payload_size(trace: Trace, record: int) -> tuple[int | None, int | None]:
    """Return the size of the payload of `record` in bytes and the last record of the trace, or None for each."""
    return (
        sql.number(trace, "SELECT payload_bytes FROM records WHERE record = ?", [record]),
        sql.number(trace, "SELECT max(record) FROM records"),
    )


def storages(trace: Trace) -> Iterator[StorageRow]:
    """Yield every storage, in order of birth within its log."""
    cursor = trace.cursor().execute(_ORDERED, _program_names(trace))
    while rows := cursor.fetchmany(10_000):
        yield from (StorageRow(*row) for row in rows)


def _program_names(trace: Trace) -> dict[str, list[Any]]:
    """Return the parameters of `_ORDERED`: the program's names of the inputs and outputs of all graphs."""
    graphs = (graph for (graph,) in sql.rows(trace, "SELECT DISTINCT graph FROM layouts ORDER BY graph"))
    return _columns([
        (graph, name, known.name)
        for graph in graphs
        for name, known in program_names(trace, graph).items()
        if known.name is not None
    ])  # fmt: skip


def _columns(rows: list[tuple[int, str, str]]) -> dict[str, list[Any]]:
    return {name: [row[i] for row in rows] for i, name in enumerate(("graphs", "names", "programs"))}


def clocks(trace: Trace) -> dict[int, int]:
    """Return the difference between Unix and monotonic time in ns for each log; 0 if unknown."""
    found = sql.rows(trace, "SELECT log, coalesce(unix_ns - monotonic_ns, 0) FROM logs")
    return dict(found)


def stacks(trace: Trace) -> dict[int, str]:
    """Return the model stacks of each site as a JSON list."""
    return dict(sql.rows(trace, "SELECT site, stacks FROM sites"))


def callers(trace: Trace) -> dict[int, str]:
    """Return the stack that called the compiled function of each graph as a JSON list, outermost first."""
    query = "SELECT g.graph, any_value(c.stack) FROM graphs g JOIN compiles c USING (log, compile_id) GROUP BY g.graph"
    return {graph: stack for graph, stack in sql.rows(trace, query) if stack is not None}


def _quoted(path: Path) -> str:
    return "'" + str(path).replace("'", "''") + "'"
