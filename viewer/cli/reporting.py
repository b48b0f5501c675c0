"""The command that writes a ticket: `stepscope report`."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from stepscope.viewer.cli.commands import (
    ReadingCommand,
    chosen,
    file_option,
    latest_option,
    note,
    source_link_option,
    trace_argument,
)
from stepscope.viewer.cli.progress import Progress
from stepscope.viewer.errors import StepscopeError

if TYPE_CHECKING:
    from stepscope.viewer.report.ticket import Ticket
    from stepscope.viewer.store.trace import Trace


def _size(_context: click.Context, option: click.Parameter, text: str | None) -> int | None:
    from stepscope.tracer.schema.byte_sizes import bytes_of

    size = bytes_of(text) if text is not None else None
    if text is not None and size is None:
        raise click.BadParameter(f"{text[:40]} is not a size: give bytes, or a size such as 500k or 5MB.")
    return size


def _kinds(_context: click.Context, _option: click.Parameter, text: str | None) -> frozenset[str] | None:
    from stepscope.viewer.redaction.kinds import kept_kinds

    return None if text is None else kept_kinds(text)


@click.command(cls=ReadingCommand)
@trace_argument
@file_option(metavar="FILE", help="Write to this file in a folder that exists. [default: report.html, .md or .zip]")
@click.option("--markdown", "form", flag_value="md", help="Write markdown for the text of an issue instead of HTML.")
@click.option(
    "--zip", "form", flag_value="zip", help="Write a zip archive of the report, the markdown text and the packed logs."
)
@click.option(
    "--redact",
    is_flag=True,
    help="Show only names that come from PyTorch and stepscope; replace every other text by a placeholder.",
)
@click.option(
    "--keep",
    metavar="KINDS",
    callback=_kinds,
    help="--redact: keep these kinds of texts; commas separate user, host, paths, environment, source, constants, "
    "texts, names, values.",
)
@click.option("--against", metavar="B", help="Compare the trace with trace B, or with a part of it such as B#step=3.")
@click.option("--note", "text", metavar="TEXT", help="Put this text on the first page.")
@click.option(
    "--max-size",
    metavar="BYTES",
    callback=_size,
    help="Leave out the least useful parts until the file has at most this size, and say which.",
)
@click.option(
    "--embed",
    metavar="BYTES",
    callback=_size,
    default="4M",
    show_default=True,
    help="HTML: hold the packed logs if they take at most this much; `stepscope serve FILE` then opens the report.",
)
@latest_option
@source_link_option
def report(
    trace: list[str],
    out: Path | None,
    form: str | None,
    redact: bool,
    keep: frozenset[str] | None,
    against: str | None,
    text: str | None,
    max_size: int | None,
    embed: int,
    latest: bool,
    source_link: str | None,
) -> None:
    """Write a ticket: one HTML file, which opens without a network, markdown, or a zip archive."""
    from stepscope.viewer.report.ticket import gather
    from stepscope.viewer.store.open import open_trace

    if keep is not None and not redact:
        raise StepscopeError("--keep says what --redact keeps: give --redact, too.")
    out = writable(out or Path(f"report.{form or 'html'}"))
    progress = Progress()
    with progress, open_trace(chosen(trace, latest)) as opened:
        _refuse_log(opened, out)
        kept = keep or frozenset()
        ticket = gather(
            opened, redact=redact, keep=kept, note=text, source_link=source_link, against=against, say=progress.say
        )
        data = _made(ticket, form, max_size, embed, progress)
        progress.clear()
        _write(out, data)
        _tell(ticket, out, data, bool(form is None and b"application/x-stepscope-log" in data))
    if redact and text:
        note("stepscope: the note is not in the report, because a note may name anything.")


def write_report(opened: Trace, out: Path) -> None:
    """Write the report with its packed log, and print its size; raise StepscopeError if that is impossible."""
    from stepscope.viewer.report.ticket import gather
    from stepscope.viewer.report.write import MOST_LOG_BYTES

    ticket = gather(opened)
    data = _made(ticket, None, None, MOST_LOG_BYTES, Progress())
    _write(writable(out), data)
    _tell(ticket, out, data, False)


def _made(ticket: Ticket, form: str | None, max_size: int | None, embed: int, progress: Progress) -> bytes:
    if form == "md":
        from stepscope.viewer.report.markdown import render_markdown

        return render_markdown(ticket, max_size).encode()
    if form == "zip":
        from stepscope.viewer.report.archive import archive

        return archive(ticket, max_size, progress.say)
    from stepscope.viewer.report.fit import rendered
    from stepscope.viewer.report.write import embedded_logs

    progress.say("packing the logs")
    return rendered(ticket, embedded_logs(ticket, embed), max_size, progress.say)


def _tell(ticket: Ticket, out: Path, data: bytes, has_log: bool) -> None:
    click.echo(f"report: {out} ({len(data) / 1000:,.0f} kB)")
    if has_log:
        note(f"stepscope: it holds the packed log, which contains source code; `stepscope serve {out}` opens it.")
    if ticket.redaction is not None:
        note(f"stepscope: {ticket.redaction.sentence}")
        if out.suffix == ".zip":
            note("stepscope: the logs are not in the archive, because they hold everything that was removed.")
    if ticket.left_out:
        note(f"stepscope: left out for the size: {'; '.join(ticket.left_out)}.")


def writable(out: Path) -> Path:
    """Return the path of a file in a folder that exists. Raises StepscopeError for another one."""
    if out.is_dir():
        raise StepscopeError(f"{out} is a folder: give the name of a file in it.")
    if not out.parent.is_dir():
        raise StepscopeError(f"There is no folder {out.parent}: make it first, or give another --out.")
    return out


def _refuse_log(trace: Trace, out: Path) -> None:
    if any(os.path.realpath(out) == os.path.realpath(file) for file in trace.own_files):
        raise StepscopeError(f"{out} is a log of this trace: give another --out.")


def _write(out: Path, data: bytes) -> None:
    """Write a file as a whole or not at all. A device or a pipe is written to as it is."""
    temporary, target = "", Path(os.path.realpath(out))
    try:
        if out.exists() and not out.is_file():
            out.write_bytes(data)
            return
        with tempfile.NamedTemporaryFile(dir=target.parent, prefix=".stepscope-", delete=False) as file:
            temporary = file.name
            file.write(data)
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(temporary, 0o666 & ~mask)
        os.replace(temporary, target)
        temporary = ""
    except OSError as error:
        raise StepscopeError(f"The file {out} cannot be written: {error.strerror or error}") from None
    finally:
        if temporary:
            with suppress(OSError):
                os.unlink(temporary)
