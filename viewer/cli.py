"""The command `stepscope`: the one place that joins the recorder and the viewer."""

from __future__ import annotations

import gc
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stepscope.viewer import asking
from stepscope.viewer.asking import Latest, Trace
from stepscope.viewer.errors import StepscopeError
from stepscope.viewer.quick_command import QuickCommand, QuickGroup, asked_for
from stepscope.viewer.repro.command import repro

if TYPE_CHECKING:
    from stepscope.tracer.config import TraceConfig
    from stepscope.tracer.run import RunResult
    from stepscope.viewer.store.open import Trace as OpenedTrace

app = typer.Typer(
    cls=QuickGroup,
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Record PyTorch programs compiled with torch.compile, and read what was recorded.",
)
app.callback()(lambda: None)
_command = partial(app.command, cls=QuickCommand)
_command()(asking.check)
_command()(asking.search)
_command()(asking.sql)
_command()(asking.tensor)
AOTI_LEVELS = ("launches", "values", "save")
_command()(repro)


def main() -> None:
    """Entry point. Errors are one sentence on standard error; exit code 2."""
    gc.set_threshold(50_000)  # What dies in a cycle is little, and looking for it takes a twentieth of the time.
    try:
        asked_for(app, sys.argv[1:2])()
    except StepscopeError as error:
        print(f"stepscope: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(0)


@_command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
def run(
    command: Annotated[list[str], typer.Argument(metavar="COMMAND...", help="script.py, -m module, or any command.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the logs.")] = Path("stepscope_trace"),
    level: Annotated[
        str,
        typer.Option(
            metavar="LEVEL",
            help="off; launches: names, arguments, times; values: and statistics of the tensors before and after each "
            "launch; save: and the tensors themselves, as .pt files.",
        ),
    ] = "launches",
    kernels: Annotated[
        str, typer.Option(metavar="GLOBS", help="values, save: kernels with such names only; commas between globs.")
    ] = "",
    args: Annotated[
        str, typer.Option(metavar="GLOBS", help="values, save: arguments with such names only; commas between globs.")
    ] = "",
    steps: Annotated[
        str,
        typer.Option(
            metavar="FIRST:STOP",
            help="values, save: these steps only. 3:5 is 3 and 4, as in Python; 3: is 3 and all later; 3 that one.",
        ),
    ] = "",
    every: Annotated[
        str, typer.Option(metavar="N", help="values, save: every N-th step only, from the first of --steps on.")
    ] = "1",
    max_bytes_per_tensor: Annotated[
        str,
        typer.Option(
            metavar="BYTES",
            help="Of a larger tensor the statistics are over a strided sample, marked as one. 4M, 64MiB, 1GB, or "
            "bytes; k, M, G are powers of 1000, Ki, Mi, Gi of 1024.",
        ),
    ] = "",
    verify_before: Annotated[
        bool,
        typer.Option("--verify-before", help="Read tensors again before each launch: finds writes no launch made."),
    ] = False,
    save_quota: Annotated[
        str, typer.Option(metavar="BYTES", help="save: most bytes of .pt files that one process writes.")
    ] = "1GB",
    lifetimes: Annotated[
        str, typer.Option(metavar="MODE", help="Births and deaths of the tensors' storages: log, assert or off.")
    ] = "log",
    lifetimes_every: Annotated[
        str,
        typer.Option(
            metavar="N",
            help="Births and deaths in the first 8 calls of a graph, then in every N-th step. [default: every step, or"
            " every 16th without a C++ compiler]",
            show_default=False,
        ),
    ] = "",
    assert_lifetimes: Annotated[
        bool, typer.Option("--assert-lifetimes", help="Raise in the program where a storage does not live as expected.")
    ] = False,
    check_recompute: Annotated[
        bool,
        typer.Option("--check-recompute", help="Check the memory figures of Inductor's reordering at each swap."),
    ] = False,
    fresh_cache: Annotated[
        bool, typer.Option("--fresh-cache", help="Compile into an empty cache that is removed afterwards.")
    ] = False,
    provenance: Annotated[
        bool, typer.Option(help="Keep each kernel's lines of model source; each graph compiles once more for it.")
    ] = True,
    aoti: Annotated[
        str,
        typer.Option(
            metavar="LEVEL",
            help="Packages of AOTInductor and graphs with cpp_wrapper that are compiled meanwhile print launches, "
            "values or save to standard output, and what any prints becomes a log; also of a C++ program.",
        ),
    ] = "",
    crash: Annotated[
        bool,
        typer.Option(
            "--crash",
            help="If the program dies, run it again: with each launch waited for, with the values "
            "of the suspect kernel, with sanity checks.",
        ),
    ] = False,
    max_runs: Annotated[int, typer.Option(metavar="N", min=1, help="crash: most runs, the first one included.")] = 5,
    timeout: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            min=0.001,
            help="crash: end a run that takes longer. [default: none; 10 times the first run and a minute for others]",
            show_default=False,
        ),
    ] = None,
    sanitizer: Annotated[
        bool, typer.Option("--sanitizer", help="crash: one more run under compute-sanitizer, if it is installed.")
    ] = False,
) -> None:
    """Run a program and record it: stepscope run -- python train.py --lr 1e-3"""
    if aoti and aoti not in AOTI_LEVELS:
        raise StepscopeError(f"--aoti is {aoti!r}; it can be {', '.join(AOTI_LEVELS[:-1])} or save.")
    if not crash and (max_runs != 5 or timeout is not None or sanitizer):
        raise StepscopeError("--max-runs, --timeout and --sanitizer are for --crash: without it nothing is run again.")
    settings = {
        "level": level, "kernels": kernels, "args": args, "steps": steps or None, "every": every,
        "max_bytes_per_tensor": max_bytes_per_tensor or None, "verify_before": verify_before,
        "save_quota_bytes": save_quota, "provenance": provenance, "check_recompute": check_recompute,
        "lifetimes": "assert" if assert_lifetimes else lifetimes, "lifetimes_every": lifetimes_every or None,
    }  # fmt: skip
    if crash:
        limits = {"most_runs": max_runs, "timeout_s": timeout, "with_sanitizer": sanitizer}
        raise typer.Exit(_run_crash(command, out, fresh_cache, settings, limits, aoti or None))
    result = _record(command, out, fresh_cache, settings, aoti or None)
    if aoti and not result.printed_launches:
        from stepscope.tracer.aoti.live import NOTHING_PRINTED

        typer.echo(f"stepscope: {NOTHING_PRINTED}", err=True)
    if result.logs:
        trace = result.logs[0] if len(result.logs) == 1 else out
        typer.echo(f"stepscope: {len(result.logs)} log(s) in {out}", err=True)
        typer.echo(f"stepscope: read it with: stepscope summary {trace}   or: stepscope serve {trace}", err=True)
    elif level != "off":
        typer.echo(
            "stepscope: no log was written: nothing was compiled, or the program's Python has no stepscope installed, "
            "or TORCH_DEVICE_BACKEND_AUTOLOAD=0 keeps it from starting",
            err=True,
        )
    raise typer.Exit(result.exit_code)


@_command()
def serve(
    trace: Trace,
    port: Annotated[int, typer.Option(help="0: a free one.")] = 8686,
    latest: Latest = False,
    follow: Annotated[
        bool, typer.Option("--follow", help="The logs still grow, or there is none yet: the pages say what is new.")
    ] = False,
) -> None:
    """Browse a trace on 127.0.0.1."""
    trace = asking.chosen(trace, latest)
    if follow:
        _serve_growing(trace, port)
        return
    from stepscope.viewer import server
    from stepscope.viewer.store.ahead import open_ahead

    with open_ahead(trace, server.warm, server.ask_first) as opened:
        server.serve(opened, port=port)


def _serve_growing(trace: list[str], port: int) -> None:
    from stepscope.viewer import server
    from stepscope.viewer.follow import Current, Follower, open_growing
    from stepscope.viewer.store.mark import means_store

    if means_store(trace):
        raise StepscopeError("--follow is for logs that grow; a STORE grows when `stepscope ingest` is run again.")

    current = Current(open_growing(trace, asking.note), following=True)
    follower = Follower(trace, current, asking.note)
    follower.start()
    try:
        server.serve(current, port=port)
    finally:
        follower.stop()
        current.close()


@_command()
def summary(
    trace: Trace,
    as_json: Annotated[bool, typer.Option("--json", help="The JSON answer, for programs.")] = False,
    latest: Latest = False,
) -> None:
    """The verdict and the facts of a trace, in the terminal."""
    import orjson

    from stepscope.viewer import summary as summaries
    from stepscope.viewer.store.open import open_trace

    with open_trace(asking.chosen(trace, latest)) as opened:
        if as_json:
            sys.stdout.write(orjson.dumps(summaries.summary(opened), option=orjson.OPT_INDENT_2).decode() + "\n")
        else:
            sys.stdout.write(summaries.summary_text(opened) + "\n")


@_command()
def report(
    trace: Trace,
    out: Annotated[Path, typer.Option("--out", "-o", help="The file to write.")] = Path("report.html"),
    redact: Annotated[
        bool,
        typer.Option("--redact", help="Show only what PyTorch and stepscope name; everything else is a placeholder."),
    ] = False,
    note: Annotated[str | None, typer.Option(metavar="TEXT", help="Stands on the first page.")] = None,
    latest: Latest = False,
) -> None:
    """One HTML file that opens without a network, for a ticket."""
    from stepscope.viewer.store.open import open_trace

    with open_trace(asking.chosen(trace, latest)) as opened:
        _write_report(opened, out, redact, note)
    if redact and note:
        asking.note("stepscope: the note is not in the report, because nobody can prove what a note tells.")


@_command()
def export(
    trace: Trace,
    to: Annotated[
        str,
        typer.Option(
            metavar="FORM",
            help="csv or parquet: a table; memory_snapshot: births and deaths of storages for pytorch.org/memory_viz; "
            "chrome: compiles, steps, calls, launches and live bytes for Perfetto; raw: the payload of a record.",
        ),
    ],
    table: Annotated[
        str, typer.Option(metavar="NAME", help="csv, parquet: which table; storages has a row for each storage.")
    ] = "storages",
    record: Annotated[
        int | None, typer.Option(metavar="ID", help="raw: which record; the table `records` lists them.")
    ] = None,
    part: Annotated[
        str | None,
        typer.Option("--bytes", metavar="RANGE", help="raw: 0-99 the first 100 bytes, 100- the rest, -50 the last 50."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="The file to write; - is standard output; chrome: a .gz is packed."),
    ] = None,
) -> None:
    """Tables, the timeline and the payloads of a trace for other programs."""
    from stepscope.viewer.export import STDOUT, counted, filled_tables
    from stepscope.viewer.export import export as write
    from stepscope.viewer.store.open import open_trace

    with open_trace(trace) as opened:
        path, count = write(opened, to, table, out, record, part)
        if to in ("csv", "parquet") and not count:
            filled = ", ".join(filled_tables(opened))
            typer.echo(f"stepscope: the table {table} has no rows in this trace; --table takes: {filled}", err=True)
    if path != STDOUT:
        typer.echo(f"{path} ({count:,} {counted(to)})")


@_command()
def ingest(
    folder: Annotated[
        str, typer.Argument(metavar="DIR", help="A folder of logs, or a log: a path, or an address such as s3://...")
    ],
    to: Annotated[
        str, typer.Option("--to", metavar="STORE", help="Folder for the Parquet files: a path or an address.")
    ],
    scheduler: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Of dask.distributed, whose workers read the logs then.")
    ] = None,
    workers: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Processes of this machine. [default: one for each core]")
    ] = None,
) -> None:
    """Read the logs of many ranks with many workers; the same command goes on where it stopped. A STORE is a TRACE."""
    from stepscope.viewer.units.command import ingest as ingest_logs

    ingest_logs(folder, to, scheduler, workers, say=typer.echo)


@_command()
def import_aoti(
    text: Annotated[str, typer.Argument(metavar="LOG.txt", help="What a program printed; - is standard input.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the log.")] = Path("stepscope_trace"),
    profile: Annotated[
        Path | None,
        typer.Option(metavar="TRACE.json", help="PyTorch's profiler of the same run: durations by name and order."),
    ] = None,
) -> None:
    """Make a trace of what PyTorch's C++ debug printer printed: AOTInductor, cpp_wrapper."""
    from stepscope.tracer.aoti.capture import import_file

    try:
        log, runs, launches = import_file(text, out, profile)
    except (OSError, ValueError) as error:
        raise StepscopeError(str(error)) from None
    typer.echo(f"{log} ({runs:,} run(s) of a model, {launches:,} launches)")
    typer.echo(f"read it with: stepscope summary {log}   or: stepscope serve {log}")


@_command()
def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the trace and the report.")] = Path("demo"),
) -> None:
    """Record a small training run that overflows in fp16, print the summary, write the report."""
    from importlib.util import find_spec

    from stepscope.viewer.store.open import open_trace
    from stepscope.viewer.summary import summary_text

    if find_spec("torch") is None:
        raise StepscopeError("the demo compiles a model and torch is not installed; pip install 'stepscope[capture]'")
    result = _record(["-m", "stepscope.tracer.demo"], out, fresh_cache=False, settings={"level": "values"})
    if result.exit_code or not result.logs:
        raise StepscopeError(f"the demo's training run ended with exit code {result.exit_code}; its output is above")
    log = result.logs[-1]
    with open_trace(log) as opened:
        typer.echo("\n" + summary_text(opened))
        _write_report(opened, out / "report.html", redact=False)
    typer.echo(f"browse it: stepscope serve {log}")


def _record(
    command: list[str], out: Path, fresh_cache: bool, settings: Mapping[str, Any], aoti: str | None = None
) -> RunResult:
    from stepscope.tracer.aoti.live import about_kernels
    from stepscope.tracer.run import run as run_command

    config = _config(out, settings)
    if aoti and (about := about_kernels(aoti, config.kernels)):
        asking.note(about)
    try:
        return run_command(command, config, fresh_cache=fresh_cache, aoti=aoti)
    except OSError as error:
        raise StepscopeError(f"cannot run {command[0]}: {error.strerror}") from None


def _run_crash(
    command: list[str],
    out: Path,
    fresh_cache: bool,
    settings: Mapping[str, Any],
    limits: Mapping[str, Any],
    aoti: str | None,
) -> int:
    """The first run's exit code."""
    from stepscope.tracer.crash_runs import CrashRuns, Limits
    from stepscope.viewer.crash_look import look

    def say(text: str) -> None:
        asking.note(f"stepscope: {text}")

    config = _config(out, settings)
    runs = CrashRuns(command, config, Limits(**limits), look, say, fresh_cache=fresh_cache, aoti=aoti)
    try:
        exit_code = runs.run()
    except FileExistsError as error:
        raise StepscopeError(f"{error.filename} holds an earlier run: give another folder with --out.") from None
    except OSError as error:
        raise StepscopeError(f"cannot run {command[0]}: {error.strerror}") from None
    say(f"read it with: stepscope summary {out}   or: stepscope serve {out}")
    return exit_code


def _config(out: Path, settings: Mapping[str, Any]) -> TraceConfig:
    from stepscope.tracer.config import ConfigError, make_config, option_of

    try:
        return make_config(out, **settings)
    except ConfigError as error:
        raise StepscopeError(f"{option_of(error.setting)} {error.problem}") from None


def _write_report(opened: OpenedTrace, out: Path, redact: bool, note: str | None = None) -> None:
    from stepscope.viewer.report import render_report

    html = render_report(opened, redact=redact, note=note)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(html, encoding="utf-8")
    except OSError as error:
        raise StepscopeError(f"cannot write {out}: {error.strerror}") from None
    typer.echo(f"report: {out} ({len(html.encode()) / 1000:,.0f} kB)")
