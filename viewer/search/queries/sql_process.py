"""Runs one statement of the user in a process. It reads the task from standard input, and writes to standard output a
line when it is ready, then one JSON object.

It cannot open other files once the index is attached, writes none, and the system limits its memory. It ends when its
standard input ends, because nobody waits for the answer any more.
"""

from __future__ import annotations

import datetime  # noqa: F401
import decimal
import json
import os
import pickle
import sys
import threading
import uuid  # noqa: F401
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import duckdb

from stepscope.viewer.store.isolated_connection import lock

READS = {duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN}
_OWN_BYTES = 256 << 20
"""Memory that Python and DuckDB need in addition to that of the statement."""
_MOST_THREADS = 4
_NUMBER_BYTES = 8
_ZONE = "WITH TIME ZONE"


@dataclass(frozen=True)
class StatementRun:
    """A statement to run. The process that asks pickles it."""

    connect: Callable[[], duckdb.DuckDBPyConnection]
    statement: str
    rows: int
    memory_bytes: int
    answer_bytes: int
    """Maximum size of all cells together."""
    cell_characters: int
    is_one_file: bool
    """Whether no file must be opened once the connection exists."""


class Refused(Exception):
    """Raised with a message for the user."""


def main() -> None:
    answers = _own_output()
    task: StatementRun = pickle.load(sys.stdin.buffer)
    threading.Thread(target=_end_with_input, daemon=True).start()
    connection = task.connect()
    lock(connection, task.memory_bytes, _MOST_THREADS)
    _limit(task.memory_bytes + _OWN_BYTES, task.is_one_file)
    _write(answers, b"\n")
    try:
        answer = _run(connection, task)
    except Refused as error:
        answer = {"problem": str(error)}
    except MemoryError:
        answer = {"problem": None}
    except duckdb.OutOfMemoryException:
        answer = {"problem": None}
    except (duckdb.Error, RuntimeError, UnicodeError, TypeError, ValueError) as error:
        answer = {"problem": f"The statement failed: {_sentence(error)}"}
    _write(answers, json.dumps(answer, allow_nan=False).encode())
    os._exit(0)  # threads that still run cannot be stopped otherwise


def _end_with_input() -> None:
    while os.read(0, 1024):
        pass
    os._exit(1)


def _own_output() -> int:
    """Return standard output, to which nothing else can write afterwards: DuckDB would report its progress there."""
    answers, nowhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)
    return answers


def _write(answers: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(answers, view) :]


def _limit(memory_bytes: int, is_one_file: bool) -> None:
    try:
        import resource
    except ImportError:  # Windows
        return
    limits = [("RLIMIT_DATA", memory_bytes), ("RLIMIT_FSIZE", 0), ("RLIMIT_CORE", 0)]
    if is_one_file:  # the number of the next file would exceed the limit
        free = os.dup(0)
        os.close(free)
        limits.append(("RLIMIT_NOFILE", free))
    for name, value in limits:
        kind = getattr(resource, name, None)
        if kind is None:
            continue
        hard = resource.getrlimit(kind)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        try:
            resource.setrlimit(kind, (value, value))
        except (OSError, ValueError):  # the system does not know this limit
            continue


def _run(connection: duckdb.DuckDBPyConnection, task: StatementRun) -> dict[str, Any]:
    try:
        task.statement.encode()
    except UnicodeEncodeError:
        raise Refused("The statement is not valid UTF-8.") from None
    parsed = connection.extract_statements(task.statement)
    if len(parsed) != 1 or parsed[0].type not in READS:
        raise Refused("Only a single statement that reads is run, one with SELECT, WITH, FROM, DESCRIBE or EXPLAIN.")
    connection.execute(_readable(connection, parsed[0]))
    described = connection.description or []
    cells = _Cells(task)
    rows: list[list[Any]] = []
    more = False
    while fetched := connection.fetchmany(1):
        if len(rows) >= task.rows or cells.are_full:
            more = True
            break
        rows.append([cells.cell(value) for value in fetched[0]])
    columns, types = ([str(column[i]) for column in described] for i in (0, 1))
    return {"columns": columns, "types": types, "rows": rows, "more": more, "cut": cells.cut}


def _readable(connection: duckdb.DuckDBPyConnection, parsed: Any) -> Any:
    """Return the statement with times of a time zone as text: DuckDB converts them with a package that may be
    missing."""
    if parsed.type != duckdb.StatementType.SELECT:
        return parsed
    inner = parsed.query.strip().rstrip(";")
    try:
        columns = connection.execute(f"DESCRIBE {inner}").fetchall()
    except duckdb.Error:
        return parsed
    if not any(_ZONE in kind for _, kind, *_ in columns):
        return parsed
    names = [name.replace('"', '""') for name, *_ in columns]
    chosen = [
        f'CAST(#{i} AS VARCHAR) AS "{name}"' if _ZONE in columns[i - 1][1] else f'#{i} AS "{name}"'
        for i, name in enumerate(names, 1)
    ]
    return f"SELECT {', '.join(chosen)} FROM ({inner}\n)"


class _Cells:
    """Converts cells to values of JSON, as long as there is room for them."""

    def __init__(self, task: StatementRun) -> None:
        self._left, self._longest = task.answer_bytes, task.cell_characters
        self.cut = 0
        """Number of cells that were cut short."""

    @property
    def are_full(self) -> bool:
        return self._left <= 0

    def cell(self, value: Any) -> Any:
        plain = _plain(value)
        if not isinstance(plain, str):
            self._left -= _NUMBER_BYTES
            return plain
        if len(plain) > self._longest:
            self.cut += 1
            plain = f"{plain[: self._longest]}… ({len(plain):,} characters)"
        self._left -= _NUMBER_BYTES + len(plain.encode("utf-8", "surrogatepass"))
        return plain


def _plain(value: Any) -> Any:
    """Return a value of JSON. Integers beyond 2**53, which a browser would change, become text."""
    if isinstance(value, decimal.Decimal):
        value = float(value)
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return value if abs(value) <= 1 << 53 else str(value)
    if isinstance(value, float):
        return value if abs(value) < float("inf") else str(value)
    return str(value)


def _sentence(error: Exception) -> str:
    # An error of a Python file system has its traceback; its message is in the last line.
    lines = str(error).strip().split("\n")
    text = lines[-1 if lines[0].endswith("Traceback (most recent call last):") else 0]
    return text.rpartition(" Error: ")[2][:300]
