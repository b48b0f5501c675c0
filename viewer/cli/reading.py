"""The commands that show or write a whole trace: `stepscope serve`, `summary`, `export` and `ingest`."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from pathlib import Path

import click

from stepscope.viewer.cli.commands import (
    COUNT,
    NUMBER,
    ExplainedArgument,
    ReadingCommand,
    chosen,
    echo_json,
    file_option,
    json_option,
    latest_option,
    note,
    one_of,
    source_link_option,
    trace_argument,
    whole_number,
)
from stepscope.viewer.cli.progress import Progress
from stepscope.viewer.errors import StepscopeError
from stepscope.viewer.exports.formats import FORMATS, MOST_PAGES, STDOUT, WantedPages
from stepscope.viewer.text.formats import plural
from stepscope.viewer.text.source_links import EDITOR


@click.command(cls=ReadingCommand)
@trace_argument
@click.option(
    "--port",
    type=whole_number(0, 65535),
    metavar="N",
    default=8686,
    help="Listen on this port; 0 takes a free one.",
)
@latest_option
@click.option(
    "--follow",
    is_flag=True,
    help="Follow logs that still grow or that appear later in a folder; the pages report new records.",
)
@source_link_option
@click.option("--open", "opens_browser", is_flag=True, help="Open the dashboard in the browser.")
def serve(
    trace: list[str], port: int, latest: bool, follow: bool, source_link: str | None, opens_browser: bool
) -> None:
    """Browse a trace on 127.0.0.1."""
    trace = chosen(trace, latest)
    link = source_link or EDITOR
    if follow:
        _serve_growing(trace, port, link, opens_browser)
        return
    from stepscope.viewer.store.open_in_background import Building, open_in_background
    from stepscope.viewer.web import server

    server.share_memory()
    opened = open_in_background(trace, server.warm, server.ask_first)
    with nullcontext(opened) if isinstance(opened, Building) else opened:
        Progress().clear()
        server.serve(opened, port=port, source_link=link, opens_browser=opens_browser)


def _serve_growing(trace: list[str], port: int, source_link: str, opens_browser: bool) -> None:
    from stepscope.viewer.store.parquet.store_marker import means_store
    from stepscope.viewer.web import server
    from stepscope.viewer.web.follow import Current, Follower, open_growing

    if means_store(trace):
        raise StepscopeError("--follow is for logs that grow; a STORE grows when `stepscope ingest` is run again.")

    server.share_memory()
    current = Current(open_growing(trace, note), following=True)
    follower = Follower(trace, current, note)
    follower.start()
    try:
        server.serve(current, port=port, source_link=source_link, opens_browser=opens_browser)
    finally:
        follower.stop()
        current.close()


@click.command(cls=ReadingCommand)
@trace_argument
@json_option
@latest_option
def summary(trace: list[str], as_json: bool, latest: bool) -> None:
    """Show the findings and the facts of a trace in the terminal."""
    from stepscope.viewer.overview import summary as summaries
    from stepscope.viewer.store.open import open_trace

    with open_trace(chosen(trace, latest)) as opened:
        if as_json:
            echo_json(summaries.summary(opened))
        else:
            sys.stdout.write(summaries.summary_text(opened) + "\n")


@click.command(cls=ReadingCommand)
@trace_argument
@json_option
@latest_option
def findings(trace: list[str], as_json: bool, latest: bool) -> None:
    """List what is wrong in a trace, most severe first."""
    from stepscope.viewer.overview import summary as summaries
    from stepscope.viewer.store.open import open_trace

    with open_trace(chosen(trace, latest)) as opened:
        if as_json:
            echo_json(summaries.findings(opened))
        else:
            sys.stdout.write(summaries.findings_text(opened) + "\n")


@click.command(cls=ReadingCommand)
@trace_argument
@click.option(
    "--to",
    metavar="FORM",
    required=True,
    shell_complete=one_of(*(form.name for form in FORMATS)),
    help=f"Write {'; '.join(f'{form.name}: {form.explanation}' for form in FORMATS)}.",
)
@click.option(
    "--table",
    metavar="NAME",
    default="storages",
    help="csv, parquet: write this table; storages has a row for each storage.",
)
@click.option("--record", type=NUMBER, metavar="ID", help="raw: write this record; the table `records` lists them.")
@click.option(
    "--bytes",
    "part",
    metavar="RANGE",
    help="raw: write these bytes; 0-99 is the first 100, 100- the rest, -50 the last 50.",
)
@click.option(
    "--max-pages",
    type=COUNT,
    metavar="N",
    default=MOST_PAGES,
    help="html: write at most this many pages, and launches that they show; those of findings come first.",
)
@source_link_option
@file_option(
    metavar="FILE",
    help="Write to this file; - is standard output. chrome: a name that ends in .gz is packed. html: a new or empty"
    " folder.",
)
def export(
    trace: list[str],
    to: str,
    table: str,
    record: int | None,
    part: str | None,
    max_pages: int,
    source_link: str | None,
    out: Path | None,
) -> None:
    """Write the findings, the timeline, tables, payloads or pages of a trace for other programs and readers."""
    from stepscope.viewer.exports.write import export as write
    from stepscope.viewer.exports.write import filled_tables
    from stepscope.viewer.store.open import open_trace

    progress, remarks = Progress(), list[str]()
    pages = WantedPages(max_pages, source_link or "", progress.say, remarks.append)
    with open_trace(trace) as opened:
        try:
            path, count = write(opened, to, table, out, record, part, pages)
        finally:
            progress.clear()
        for remark in remarks:
            note(f"stepscope: {remark}")
        if to in ("csv", "parquet") and not count:
            filled = ", ".join(filled_tables(opened))
            note(f"stepscope: the table {table} has no rows in this trace; --table takes: {filled}")
    if path != STDOUT:
        counted = next(form.counted for form in FORMATS if form.name == to)
        click.echo(f"{path} ({plural(count, counted)})")


@click.command(cls=ReadingCommand)
@click.argument(
    "folder", cls=ExplainedArgument, metavar="DIR", type=click.Path(readable=False),
    explanation="A folder of logs, or a log: a path, or an address such as s3://...",
)  # fmt: skip
@click.option(
    "--to", metavar="STORE", required=True, help="Write the Parquet files to this folder, a path or an address."
)
@click.option(
    "--scheduler", metavar="ADDRESS", help="Let the workers of this scheduler of dask.distributed read the logs."
)
@click.option("--workers", type=COUNT, metavar="N", help="Read with this many processes. [default: one for each core]")
def ingest(folder: str, to: str, scheduler: str | None, workers: int | None) -> None:
    """Read the logs of many ranks with many workers. The same command continues where it stopped. A STORE is a
    TRACE."""
    from stepscope.viewer.store.distributed_ingest.command import ingest as ingest_logs

    ingest_logs(folder, to, scheduler, workers, say=click.echo)
