"""The commands that write a trace: `stepscope run`, `import-aoti` and `demo`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stepscope.viewer.cli.commands import (
    COUNT,
    PATH,
    Command,
    ExplainedArgument,
    ReadingCommand,
    file_option,
    finite,
    how_to_read,
    need_viewer,
    note,
    one_of,
)
from stepscope.viewer.errors import StepscopeError

if TYPE_CHECKING:
    from stepscope.tracer.command.run import RunResult
    from stepscope.tracer.config import TraceConfig

AOTI_LEVELS = ("launches", "values", "save")
MAX_RUNS = 5
_CHECK_EAGER = "--check-eager"
FOLDER = file_option(metavar="DIR", default="stepscope_trace", help="Write the logs to this folder.")


class RunCommand(Command):
    """A command whose option `--check-eager` takes the next word for its value only if it is a number; the parser alone
    would take the command for it."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        with_value = {name for one in self.params if not getattr(one, "is_flag", True) for name in one.opts}
        args, at = [*args], 0
        while at < len(args) and args[at].startswith("-") and args[at] != "--":
            if args[at] == _CHECK_EAGER and not "".join(args[at + 1 : at + 2]).removeprefix("-").isdecimal():
                args[at] = f"{_CHECK_EAGER}=1"
            at += 2 if args[at] in with_value else 1
        return super().parse_args(ctx, args)


@click.command(cls=RunCommand, context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.argument(
    "command", cls=ExplainedArgument, nargs=-1, required=True, metavar="COMMAND...", type=click.UNPROCESSED,
    explanation="script.py, -m module, or any command.",
)  # fmt: skip
@FOLDER
@click.option(
    "--level",
    metavar="LEVEL",
    default="launches",
    shell_complete=one_of("off", "launches", "values", "save"),
    help="Record off: nothing; launches: names, arguments, times; values: also statistics of the tensors before "
    "and after each launch; save: also the tensors themselves, as .pt files.",
)
@click.option(
    "--kernels",
    metavar="GLOBS",
    default="",
    show_default=False,
    help="values, save: read only kernels whose names match; separate globs with commas.",
)
@click.option(
    "--args",
    metavar="GLOBS",
    default="",
    show_default=False,
    help="values, save: read only arguments whose names match; separate globs with commas.",
)
@click.option(
    "--steps",
    metavar="FIRST:STOP",
    help="values, save: read only these steps. 3:5 is 3 and 4, as in Python; 3: is 3 and all later ones; 3 is step 3.",
)
@click.option(
    "--every",
    metavar="N",
    default="1",
    help="values, save: read only every N-th step, starting with the first of --steps.",
)
@click.option(
    "--max-bytes-per-tensor",
    metavar="BYTES",
    help="Read only a strided sample of larger tensors, and mark it as a sample. 4M, 64MiB, 1GB, or a number of "
    "bytes; k, M, G are powers of 1000, Ki, Mi, Gi of 1024.",
)
@click.option(
    "--elements",
    metavar="N",
    default="0",
    help="values, save: keep all elements of tensors with at most this many elements (1024 at most).",
)
@click.option(
    "--verify-before", is_flag=True, help="Read tensors again before each launch, to find writes that no launch made."
)
@click.option(
    "--red-zones", is_flag=True, help="Surround buffers with bytes that no launch may write, to find kernels that do."
)
@click.option(
    "--save-quota",
    metavar="BYTES",
    default="1GB",
    help="save: limit the .pt files of each process to this number of bytes.",
)
@click.option(
    "--lifetimes",
    metavar="MODE",
    default="log",
    shell_complete=one_of("log", "assert", "off"),
    help="Track allocations and frees of the tensors' storages: log, assert or off.",
)
@click.option(
    "--lifetimes-every",
    metavar="N",
    help="Track them in the first 8 calls of a graph, then in every N-th step. [default: every "
    "step, or every 16th without a C++ compiler]",
)
@click.option(
    "--assert-lifetimes",
    is_flag=True,
    help="Raise an error in the program where the lifetime of a storage differs from the expected one.",
)
@click.option(
    "--judge",
    metavar="STEP",
    default="off",
    shell_complete=one_of("first", "last", "every:10", "off"),
    help="Recompute each launch of a step from the inputs that it reads, in eager code and in float64: first, last, a "
    "number, or every:N. The judged step takes tens of times as long.",
)
@click.option(
    "--judge-kernels", metavar="GLOBS", default="", help="Judge only kernels whose names match, separated by commas."
)
@click.option(
    "--profile",
    metavar="FIRST:STOP",
    help="Run PyTorch's profiler in these steps, and show the operators and the kernels of each launch, the streams of "
    "each device, and its idle time. 5:8 is 5, 6 and 7.",
)
@click.option("--check-recompute", is_flag=True, help="Check the memory figures of Inductor's reordering at each swap.")
@click.option(
    _CHECK_EAGER,
    metavar="[N]",
    is_flag=False,
    flag_value="1",
    default="0",
    show_default=False,
    help="Also run the first N calls of each compiled graph in eager mode, on copies of their inputs, and compare "
    "results and gradients. N is 1 if it is left out.",
)
@click.option(
    "--judge-layers",
    is_flag=True,
    help="Where compiled code differs from eager mode, name the layer of the compile in which it begins. Checks the "
    "first call of each graph if --check-eager is not given; Inductor's caches are off.",
)
@click.option(
    "--fresh-cache",
    is_flag=True,
    help="Compile into an empty cache, and report its new files. It is removed afterwards, unless the program failed.",
)
@click.option(
    "--provenance/--no-provenance",
    default=True,
    help="Record each kernel's lines of model source. Each graph compiles once more for this.",
)
@click.option(
    "--aoti",
    metavar="LEVEL",
    shell_complete=one_of(*AOTI_LEVELS),
    help="Record launches of AOTInductor's packages and of graphs with cpp_wrapper, in C++ programs too, by "
    "PyTorch's debug printer: launches, values or save.",
)
@click.option(
    "--repeat",
    type=click.IntRange(min=2),
    metavar="N",
    help="Run the program N times, each time into a folder of its own, and compare the runs: the first launch that "
    "gives other bits from the same inputs is named. Exit with 1 if anything differs.",
)
@click.option(
    "--crash",
    is_flag=True,
    help="If the program dies, run it again: waiting for each launch, and with the C++ stack of an exception; with "
    "the values of the suspect kernel; and with sanity checks.",
)
@click.option(
    "--max-runs",
    type=COUNT,
    metavar="N",
    default=MAX_RUNS,
    help="crash: run the program at most this many times, including the first run.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0.001),
    callback=finite,
    metavar="SECONDS",
    help="crash: end a run that takes longer. [default: no limit for the first "
    "run; 10 times the first run and a minute for others]",
)
@click.option(
    "--sanitizer", is_flag=True, help="crash: run it once more under compute-sanitizer, if that is installed."
)
def run(
    command: tuple[str, ...],
    out: Path,
    level: str,
    fresh_cache: bool,
    aoti: str | None,
    repeat: int | None,
    crash: bool,
    max_runs: int,
    timeout: float | None,
    sanitizer: bool,
    save_quota: str,
    lifetimes: str,
    assert_lifetimes: bool,
    **settings: Any,
) -> None:
    """Run a program and record it, as in: stepscope run -- python train.py --lr 1e-3"""
    _check_command(command[0])
    if aoti and aoti not in AOTI_LEVELS:
        raise StepscopeError(f"--aoti is {aoti!r}; it must be {', '.join(AOTI_LEVELS[:-1])} or save.")
    if not crash and (max_runs != MAX_RUNS or timeout is not None or sanitizer):
        raise StepscopeError("--max-runs, --timeout and --sanitizer are for --crash: without it nothing is run again.")
    settings |= {"level": level, "save_quota_bytes": save_quota}
    settings |= {"lifetimes": "assert" if assert_lifetimes else lifetimes}
    if repeat is not None:
        if crash or aoti or level not in ("values", "save"):
            raise StepscopeError("--repeat compares values: give --level values, and neither --crash nor --aoti.")
        sys.exit(_repeat([*command], out, fresh_cache, settings, repeat))
    if crash:
        limits = {"most_runs": max_runs, "timeout_s": timeout, "with_sanitizer": sanitizer}
        sys.exit(_run_crash([*command], out, fresh_cache, settings, limits, aoti or None))
    result = _record([*command], out, fresh_cache, settings, aoti or None)
    if aoti:
        from stepscope.tracer.aoti.live import about_printed

        if about := about_printed(result.printed_launches, result.logs, failed=bool(result.exit_code)):
            note(f"stepscope: {about}")
    if result.cache is not None:
        note(f"stepscope: {result.cache.text}")
    if result.logs:
        note(f"stepscope: {len(result.logs)} log{'s' if len(result.logs) > 1 else ''} in {out}")
        note(f"stepscope: read it with {how_to_read(_trace(result, out))}")
    elif level != "off":
        note(f"stepscope: no log was written: {result.why_no_log}")
    sys.exit(result.exit_code)


@click.command(cls=Command)
@click.argument(
    "text", cls=ExplainedArgument, metavar="LOG.txt", type=click.Path(readable=False),
    explanation="The text that a program printed; - is standard input.",
)  # fmt: skip
@FOLDER
@click.option(
    "--profile",
    type=PATH,
    metavar="TRACE.json",
    help="Take durations from a trace by PyTorch's profiler of the same run, matched by name and order.",
)
def import_aoti(text: str, out: Path, profile: Path | None) -> None:
    """Make a trace of what PyTorch's C++ debug printer printed for AOTInductor or cpp_wrapper."""
    from stepscope.tracer.aoti.capture import import_file

    try:
        log, runs, launches = import_file(text, out, profile)
    except (OSError, ValueError) as error:
        raise StepscopeError(str(error)) from None
    click.echo(f"{log} ({runs:,} run{'s' if runs != 1 else ''} of a model, {launches:,} launches)")
    click.echo(f"Read it with {how_to_read(log)}.")


@click.command(cls=ReadingCommand)
@file_option(metavar="DIR", default="demo", help="Write the trace and the report to this folder.")
def demo(out: Path) -> None:
    """Record a small training run that overflows in fp16, print the summary, and write the report."""
    from importlib.util import find_spec

    from stepscope.viewer.cli.reporting import write_report
    from stepscope.viewer.overview.summary import summary_text
    from stepscope.viewer.store.open import open_trace

    if find_spec("torch") is None:
        raise StepscopeError("the demo compiles a model, and torch is not installed: pip install 'stepscope[capture]'")
    result = _record(["-m", "stepscope.tracer.demo"], out, fresh_cache=False, settings={"level": "values"})
    if result.exit_code or not result.logs:
        raise StepscopeError(f"the demo's training run ended with exit code {result.exit_code}; its output is above")
    with open_trace(result.logs[-1]) as opened:
        click.echo("\n" + summary_text(opened))
        write_report(opened, out / "report.html")
    how = how_to_read(_trace(result, out))
    click.echo(f"Open {out / 'report.html'} in a browser, or read the trace with {how}.")


def _trace(result: RunResult, out: Path) -> Path:
    """Return the folder of a run, or its log if the folder holds logs of earlier runs too."""
    return result.logs[0] if result.has_earlier_logs and len(result.logs) == 1 else out


def _check_command(first: str) -> None:
    """Raise an error for an option or a number that the parser took for the command."""
    if first.startswith("--"):
        _refuse_option(first.partition("=")[0])
    if first.removeprefix("-").isdecimal():
        raise StepscopeError(f"--check-eager takes a number of calls from 0 on, not {first}.")


def _refuse_option(name: str) -> None:
    """Raise NoSuchOption for what the parser let pass, since options of Python such as `-m` have to reach it."""
    context = click.get_current_context()
    options = [option for parameter in context.command.params for option in parameter.opts]
    raise click.NoSuchOption(name, possibilities=get_close_matches(name, options), ctx=context)


def _record(
    command: list[str], out: Path, fresh_cache: bool, settings: Mapping[str, Any], aoti: str | None = None
) -> RunResult:
    from stepscope.tracer.aoti.live import about_kernels, about_other_filters
    from stepscope.tracer.command.run import run as run_command

    config = _config(out, settings)
    for about in (about_kernels(aoti, config.kernels), about_other_filters(config)) if aoti else ():
        if about:
            note(about)
    try:
        return run_command(command, config, fresh_cache=fresh_cache, aoti=aoti)
    except OSError as error:
        raise StepscopeError(f"The command {command[0]} cannot be run: {error.strerror}") from None


def _repeat(command: list[str], out: Path, fresh_cache: bool, settings: Mapping[str, Any], times: int) -> int:
    """Run the program several times, compare each run with the first, and return the exit code."""
    need_viewer("stepscope run --repeat")
    from stepscope.viewer.compare.compare import compare
    from stepscope.viewer.compare.rows import Wanted
    from stepscope.viewer.compare.text import render

    folders = [out / f"run_{number}" for number in range(1, times + 1)]
    for folder in folders:
        if folder.exists():
            raise StepscopeError(f"{folder} holds an earlier run: give another folder with --out.")
    for folder in folders:
        result = _record(command, folder, fresh_cache, settings)
        if result.exit_code or not result.logs:
            note(f"stepscope: {folder.name} ended with exit code {result.exit_code}, so the runs are not compared")
            return result.exit_code or 1
    found = [compare(Wanted([str(folders[0])]), Wanted([str(folder)])) for folder in folders[1:]]
    shown = next((one for one in found if one.has_difference), found[0])
    click.echo(render(shown))
    return int(shown.has_difference)


def _run_crash(
    command: list[str],
    out: Path,
    fresh_cache: bool,
    settings: Mapping[str, Any],
    limits: Mapping[str, Any],
    aoti: str | None,
) -> int:
    """Run the program with --crash and return the exit code of the first run."""
    need_viewer("stepscope run --crash")
    from stepscope.tracer.command.crash_runs import CrashRuns, Limits
    from stepscope.viewer.crash.crash_look import look

    def say(text: str) -> None:
        note(f"stepscope: {text}")

    config = _config(out, settings)
    runs = CrashRuns(command, config, Limits(**limits), look, say, fresh_cache=fresh_cache, aoti=aoti)
    try:
        exit_code = runs.run()
    except FileExistsError as error:
        raise StepscopeError(f"{error.filename} holds an earlier run: give another folder with --out.") from None
    except OSError as error:
        raise StepscopeError(f"The command {command[0]} cannot be run: {error.strerror}") from None
    say(f"read it with {how_to_read(out)}")
    return exit_code


def _config(out: Path, settings: Mapping[str, Any]) -> TraceConfig:
    from stepscope.tracer.config import ConfigError, make_config, option_of

    try:
        return make_config(out, **settings)
    except ConfigError as error:
        raise StepscopeError(f"{option_of(error.setting)} {error.problem}") from None
