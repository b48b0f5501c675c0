"""The command `stepscope`: the one place that joins the recorder and the viewer."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from viewer.errors import StepscopeError

if TYPE_CHECKING:
    from tracer.run import RunResult
    from viewer.store.open import Trace as OpenedTrace

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Record PyTorch programs compiled with torch.compile, and read what was recorded.",
)

Trace = Annotated[
    Path, typer.Argument(metavar="TRACE", help="A log, a .gz of one, a folder of logs, or - for standard input.")
]


def main() -> None:
    """Entry point. Errors are one sentence on standard error; exit code 2."""
    try:
        app()
    except StepscopeError as error:
        print(f"stepscope: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(0)


@app.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
def run(
    command: Annotated[list[str], typer.Argument(metavar="COMMAND...", help="script.py, -m module, or any command.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the logs.")] = Path("stepscope_trace"),
    level: Annotated[str, typer.Option(help="off or launches.")] = "launches",
    fresh_cache: Annotated[
        bool, typer.Option("--fresh-cache", help="Compile into an empty cache that is removed afterwards.")
    ] = False,
    provenance: Annotated[
        bool, typer.Option(help="Keep each kernel's lines of model source; each graph compiles once more for it.")
    ] = True,
) -> None:
    """Run a program and record it: stepscope run -- python train.py --lr 1e-3"""
    result = _record(command, out, level, fresh_cache, provenance)
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


@app.command()
def serve(
    trace: Trace,
    port: Annotated[int, typer.Option(help="0: a free one.")] = 8686,
) -> None:
    """Browse a trace on 127.0.0.1."""
    from viewer.store.ahead import index_ahead

    with index_ahead(trace):
        from viewer import server

        server.warm()
    from viewer.store.open import open_trace

    with open_trace(trace) as opened:
        server.serve(opened, port=port)


@app.command()
def summary(
    trace: Trace,
    as_json: Annotated[bool, typer.Option("--json", help="The JSON answer, for programs.")] = False,
) -> None:
    """The verdict and the facts of a trace, in the terminal."""
    import orjson

    from viewer import summary as summaries
    from viewer.store.open import open_trace

    with open_trace(trace) as opened:
        if as_json:
            sys.stdout.write(orjson.dumps(summaries.summary(opened), option=orjson.OPT_INDENT_2).decode() + "\n")
        else:
            sys.stdout.write(summaries.summary_text(opened) + "\n")


@app.command()
def check(
    trace: Trace,
    fail_on: Annotated[
        str | None, typer.Option(help="Kinds of finding, with commas. Default: every warning and critical one.")
    ] = None,
) -> None:
    """Exit 1 when the trace has findings of these kinds: for CI."""
    from viewer.findings import KINDS, all_findings
    from viewer.store.open import open_trace

    kinds = {kind.strip() for kind in fail_on.split(",") if kind.strip()} if fail_on is not None else None
    unknown = sorted(kinds - set(KINDS)) if kinds else []
    if unknown:
        raise StepscopeError(
            f"--fail-on names {', '.join(unknown)}, which is no kind of finding; there are: {', '.join(KINDS)}"
        )
    with open_trace(trace) as opened:
        findings = all_findings(opened)
    hits = [f for f in findings if (f.kind in kinds if kinds is not None else f.severity != "info")]
    for finding in hits:
        typer.echo(f"{finding.severity}: {finding.kind}: {finding.title}")
    if hits:
        raise typer.Exit(1)
    typer.echo(f"ok: nothing to fail on; findings in all: {len(findings)}")


@app.command()
def report(
    trace: Trace,
    out: Annotated[Path, typer.Option("--out", "-o", help="The file to write.")] = Path("report.html"),
    redact: Annotated[bool, typer.Option("--redact", help="Leave out paths, source lines and arguments.")] = False,
) -> None:
    """One HTML file that opens without a network, for a ticket."""
    from viewer.store.open import open_trace

    with open_trace(trace) as opened:
        _write_report(opened, out, redact)


@app.command()
def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the trace and the report.")] = Path("demo"),
) -> None:
    """Record a small training run that overflows in fp16, print the summary, write the report."""
    from importlib.util import find_spec

    from viewer.store.open import open_trace
    from viewer.summary import summary_text

    if find_spec("torch") is None:
        raise StepscopeError("the demo compiles a model and torch is not installed; pip install 'stepscope[capture]'")
    result = _record(["-m", "tracer.demo"], out, "launches", fresh_cache=False, provenance=True)
    if result.exit_code or not result.logs:
        raise StepscopeError(f"the demo's training run ended with exit code {result.exit_code}; its output is above")
    log = result.logs[-1]
    with open_trace(log) as opened:
        typer.echo("\n" + summary_text(opened))
        _write_report(opened, out / "report.html", redact=False)
    typer.echo(f"browse it: stepscope serve {log}")


def _record(command: list[str], out: Path, level: str, fresh_cache: bool, provenance: bool) -> RunResult:
    from tracer.config import ConfigError, TraceConfig
    from tracer.run import run as run_command

    try:
        config = TraceConfig(out, level=level, provenance=provenance)
        return run_command(command, config, fresh_cache=fresh_cache)
    except ConfigError as error:
        raise StepscopeError(str(error)) from None
    except OSError as error:
        raise StepscopeError(f"cannot run {command[0]}: {error.strerror}") from None


def _write_report(opened: OpenedTrace, out: Path, redact: bool) -> None:
    from viewer.report import render_report

    html = render_report(opened, redact=redact)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(html, encoding="utf-8")
    except OSError as error:
        raise StepscopeError(f"cannot write {out}: {error.strerror}") from None
    typer.echo(f"report: {out} ({len(html.encode()) / 1000:,.0f} kB)")
