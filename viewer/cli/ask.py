"""The commands that query a trace: `stepscope search`, `sql` and `tensor`."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import click

from stepscope.tracer.schema.byte_sizes import bytes_of
from stepscope.viewer.cli.commands import (
    COUNT,
    ReadingCommand,
    echo_json,
    file_option,
    finite,
    force_option,
    json_option,
    note,
    words,
)
from stepscope.viewer.errors import StepscopeError


@click.command(cls=ReadingCommand)
@words("TRACE... TEXT", "The trace, and then the text to look for.", "trace_and_text")
@click.option("--regex", is_flag=True, help="Treat TEXT as a regular expression (RE2).")
@click.option("--case", is_flag=True, help="Distinguish upper and lower case.")
@click.option("--kind", metavar="NAME", help="Search only records of this event or artifact name.")
@click.option("--compile-id", metavar="ID", help="Search only records of this compile, such as 0/0.")
@click.option("--limit", type=COUNT, metavar="N", default=1000, help="Show at most this many lines.")
@json_option
def search(
    trace_and_text: list[str],
    regex: bool,
    case: bool,
    kind: str | None,
    compile_id: str | None,
    limit: int,
    as_json: bool,
) -> None:
    """Find a text in payloads and headers. Each hit is a line: log, record, kind, compile, line number, the line."""
    from stepscope.viewer.search.queries.search import search as look
    from stepscope.viewer.search.queries.search import search_text
    from stepscope.viewer.store.open import open_trace

    *trace, text = trace_and_text
    if not trace or not text:
        raise StepscopeError("Give a trace and a text: stepscope search TRACE TEXT")
    with open_trace(trace) as opened:
        piece = look(
            opened, text, regex=regex, case=case, kind=kind, compile_id=compile_id, limit=limit, seconds=float("inf")
        )
    if as_json:
        echo_json(piece)
        return
    for hit in piece.hits:
        click.echo(search_text(hit))
    if piece.next_offset is not None:
        note(f"stepscope: only the first {limit:,} lines are shown; --limit shows more")
    elif not piece.hits:
        note("stepscope: no line contains this text")


@click.command(cls=ReadingCommand)
@words("TRACE... STATEMENT", "The trace, and then a statement in DuckDB's SQL.", "trace_and_statement")
@click.option("--json", "as_json", is_flag=True, help="Write JSON for programs: the columns, and each row as a list.")
@click.option("--limit", type=COUNT, metavar="N", default=100_000, help="Show at most this many rows.")
@click.option(
    "--max-seconds",
    type=click.FloatRange(min=0.001),
    callback=finite,
    metavar="SECONDS",
    default=600.0,
    help="End a statement that takes longer.",
)
@click.option(
    "--max-memory",
    metavar="BYTES",
    default="4G",
    help="End a statement that takes more memory: 500M, 4G, or a number of bytes.",
)
@click.option(
    "--max-bytes",
    metavar="BYTES",
    default="100M",
    help="Show at most this many bytes in all cells together.",
)
def sql(
    trace_and_statement: list[str], as_json: bool, limit: int, max_seconds: float, max_memory: str, max_bytes: str
) -> None:
    """Ask the index of a trace in SQL. `select * from information_schema.tables` lists what the index holds."""
    import csv

    from stepscope.viewer.search.ask import ask
    from stepscope.viewer.store.open import open_trace
    from stepscope.viewer.text.clean import clean
    from stepscope.viewer.text.formats import plural

    memory, most = _size("--max-memory", max_memory), _size("--max-bytes", max_bytes)
    *trace, statement = trace_and_statement
    if not trace:
        raise StepscopeError("Give a trace and a statement: stepscope sql TRACE 'select ...'")
    with open_trace(trace) as opened:
        answer = ask(
            opened, statement, limit, max_seconds, memory_bytes=memory, answer_bytes=most, cell_characters=most
        )
    if as_json:
        echo_json(answer)
        return
    out = csv.writer(sys.stdout, lineterminator="\n")
    rows = [answer.columns, *answer.rows]
    if sys.stdout.isatty():
        rows = [[clean(cell) if isinstance(cell, str) else cell for cell in row] for row in rows]
    out.writerows(rows)
    if answer.cut:
        note(f"stepscope: truncated {plural(answer.cut, 'long cell')}; --max-bytes shows more")
    if answer.more:
        option = "--limit" if len(answer.rows) == limit else "--max-bytes"
        note(f"stepscope: only the first {len(answer.rows):,} rows are shown; {option} shows more")


def _size(option: str, text: str) -> int:
    size = bytes_of(text)
    if not size:
        raise StepscopeError(f"{option} is {text!r}: give a number of bytes, or a size such as 500M or 4G.")
    return size


@click.command(cls=ReadingCommand)
@words(
    "TRACE... [ID]",
    "The trace, and then the number of a saved tensor. Without a number all of them are listed.",
    "trace_and_id",
)
@file_option(metavar="FILE", help="Copy the .pt file to this file.")
@force_option
def tensor(trace_and_id: list[str], out: Path | None, force: bool) -> None:
    """List the tensors that --level save wrote, describe one, or copy its file for torch.load."""
    from stepscope.viewer.store.open import open_trace
    from stepscope.viewer.values.queries import saved_files as tensors

    trace, tensor_id = _trace_and_id(trace_and_id)
    if tensor_id is None and out is not None:
        raise StepscopeError("-o needs the ID of a tensor; `stepscope tensor TRACE` lists them.")
    with open_trace(trace) as opened:
        if tensor_id is None:
            click.echo(tensors.tensor_list(opened))
        elif out is None:
            click.echo(tensors.tensor_text(opened, tensor_id))
        else:
            size = tensors.copy_tensor(opened, tensor_id, out, force=force)
            click.echo(f"{out} ({size:,} bytes); load it with: torch.load({str(out)!r}, weights_only=True)")


def _trace_and_id(arguments: list[str]) -> tuple[list[str], int | None]:
    """Split off a trailing number as the id; a log named 7 must be written as ./7."""
    *trace, last = arguments
    if trace and re.fullmatch(r"[0-9]{1,18}", last):
        return trace, int(last)
    return arguments, None
