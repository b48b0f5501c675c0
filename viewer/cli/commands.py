"""The base classes of the commands, and the parameters that several commands share."""

from __future__ import annotations

import math
import shlex
import sys
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from shutil import which
from typing import Any, TypeVar

import click

from stepscope.viewer.cli.progress import IndexBar
from stepscope.viewer.errors import StepscopeError
from stepscope.viewer.ingest.watch import watched
from stepscope.viewer.text.source_links import checked

Function = TypeVar("Function", bound=Callable[..., Any])
PACKAGES = ["duckdb", "fastapi", "fsspec", "jinja2", "starlette", "uvicorn"]
"""Packages that reading a trace needs, but recording does not."""
if sys.version_info < (3, 14):  # part of the standard library since 3.14
    PACKAGES.append("backports.zstd")


def whole_number(least: int, most: int = 2**63 - 1) -> Callable[[object], int]:
    """Return the type of an option for whole numbers from `least` to `most`, by default those of a BIGINT column."""

    def convert(value: object) -> int:
        try:
            number = int(str(value))
        except ValueError:  # also raised for thousands of digits
            number = least - 1
        if not least <= number <= most:
            raise click.BadParameter(f"{_short(str(value))} is not a whole number from {least} to {most}.")
        return number

    return convert


def _short(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:40]}…"


COUNT = whole_number(1)
NUMBER = whole_number(0)
PATH = click.Path(path_type=Path)


class Command(click.Command):
    """A command whose help also explains its arguments, and whose line in the list of commands is not cut."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        arguments = [one for one in self.get_params(ctx) if isinstance(one, ExplainedArgument)]
        if arguments:
            with formatter.section("Arguments"):
                formatter.write_dl([(one.metavar or "", one.explanation) for one in arguments])
        super().format_options(ctx, formatter)

    def get_short_help_str(self, limit: int = 45) -> str:
        return super().get_short_help_str(limit=max(limit, 200))


class ReadingCommand(Command):
    """A command that reads a trace and therefore needs the packages of the extra `viewer`."""

    def invoke(self, ctx: click.Context) -> Any:
        need_viewer(ctx.command_path)
        bar = IndexBar()
        with watched(bar):
            try:
                return super().invoke(ctx)
            finally:
                bar.clear()


def need_viewer(command: str) -> None:
    """Raise StepscopeError with the command that installs a missing package."""
    missing = next((name for name in PACKAGES if not _is_there(name)), None)
    if missing is not None:
        raise StepscopeError(f"`{command}` needs {missing}, which is not installed: pip install 'stepscope[viewer]'")


def _is_there(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:  # the parent package is missing
        return False


class ExplainedArgument(click.Argument):
    """An argument with a help text, which older versions of click do not support."""

    def __init__(self, *args: Any, explanation: str, **rest: Any) -> None:
        super().__init__(*args, **rest)
        self.explanation = explanation


def words(metavar: str, explanation: str, name: str = "trace") -> Callable[[Function], Function]:
    """Declare an argument of one or more words: the paths of a trace, and for some commands another last word."""
    return click.argument(
        name, cls=ExplainedArgument, nargs=-1, required=True, metavar=metavar, explanation=explanation,
        type=click.Path(readable=False), callback=lambda _context, _parameter, value: [*value],
    )  # fmt: skip


trace_argument = words(
    "TRACE...",
    "A log, a log packed as .gz or .zst, a folder of logs, - for standard input, several of these, or a STORE.",
)
latest_option = click.option(
    "--latest",
    is_flag=True,
    help="Read only the newest log of a folder. A folder keeps the logs of older runs.",
)

source_link_option = click.option(
    "--source-link",
    metavar="TEMPLATE",
    callback=lambda _context, _parameter, value: None if value is None else checked(value),
    help="Link lines of model source to this address, such as 'https://host/repository/blob/main/{path}#L{line}'."
    " In a repository, the path is relative to the common folder of the program.",
)


json_option = click.option("--json", "as_json", is_flag=True, help="Write JSON for programs.")
force_option = click.option("--force", is_flag=True, help="Overwrite an existing file.")


def file_option(**settings: Any) -> Callable[[Function], Function]:
    """Declare the option for the output of a command."""
    return click.option("--out", "-o", type=PATH, **settings)


def echo_json(value: object) -> None:
    """Print a value as JSON."""
    import orjson

    sys.stdout.write(orjson.dumps(value, option=orjson.OPT_INDENT_2).decode() + "\n")


def finite(_context: click.Context, _parameter: click.Parameter, value: float | None) -> float | None:
    """Refuse nan and inf, which click accepts in any range."""
    if value is not None and not math.isfinite(value):
        raise click.BadParameter(f"{value} is not a finite number.")
    return value


def one_of(*choices: str) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    """Return the shell completion of an option with these values."""
    return lambda _context, _parameter, begun: [choice for choice in choices if choice.startswith(begun)]


def note(text: str) -> None:
    """Print a remark to standard error."""
    click.echo(text, err=True)


def how_to_read(trace: Path) -> str:
    """Return the commands that read a trace, so that the shell that started this command finds them."""
    typed, name = sys.argv[0], "stepscope"
    found = which(name)
    if Path(typed).name == name and (found is None or not Path(found).samefile(typed)):
        name = typed
    quoted = shlex.quote(str(trace))
    return f"`{name} summary {quoted}` or `{name} serve {quoted}`"


def chosen(trace: Sequence[str], latest: bool) -> list[str]:
    """Return the trace, or with `latest` the newest of its logs. Raises StepscopeError for a STORE with `latest`."""
    from stepscope.viewer.ingest.sources import STDIN, find_logs
    from stepscope.viewer.store.parquet.store_marker import means_store

    if not latest or STDIN in trace:
        return [*trace]
    if means_store(trace):
        raise StepscopeError(f"--latest chooses one of several logs, and {trace[0]} is a STORE: leave --latest out.")
    newest = max(find_logs(trace), key=lambda log: log.mtime_ns).path
    return [str(newest)] if newest.exists() else [*trace]  # a log within a report has no path
