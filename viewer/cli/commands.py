"""How the commands of the command line are made: click's own classes, and what they are asked for in many places."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from stepscope.viewer.cli.extras import need_viewer

Function = TypeVar("Function", bound=Callable[..., Any])


def whole_number(least: int, most: int = 2**63 - 1) -> Callable[[object], int]:
    """The type of an option: a number from `least` to `most`, which a column of the index can hold."""

    def convert(value: object) -> int:
        try:
            number = int(str(value))
        except ValueError:  # also of a text of thousands of digits
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
    """A command whose help explains its arguments, too, and whose line in the list of commands is not cut."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        told = [(one.metavar or "", one.explanation) for one in self.get_params(ctx) if isinstance(one, ToldArgument)]
        if told:
            with formatter.section("Arguments"):
                formatter.write_dl(told)
        super().format_options(ctx, formatter)

    def get_short_help_str(self, limit: int = 45) -> str:
        return super().get_short_help_str(limit=max(limit, 200))


class ReadingCommand(Command):
    """A command that reads a trace, which needs the packages of the extra `viewer`."""

    def invoke(self, ctx: click.Context) -> Any:
        need_viewer(ctx.command_path)
        return super().invoke(ctx)


class ToldArgument(click.Argument):
    """An argument with a help text; those of click have none in its older versions."""

    def __init__(self, *args: Any, explanation: str, **rest: Any) -> None:
        super().__init__(*args, **rest)
        self.explanation = explanation


def words(metavar: str, explanation: str, name: str = "trace") -> Callable[[Function], Function]:
    """One word or more, as a list: paths of a trace, and in some commands a last word of another kind."""
    return click.argument(
        name, cls=ToldArgument, nargs=-1, required=True, metavar=metavar, explanation=explanation,
        type=click.Path(readable=False), callback=lambda _context, _parameter, value: [*value],
    )  # fmt: skip


trace_argument = words(
    "TRACE...",
    "A log, a log packed as .gz or .zst, a folder of logs, - for standard input, several of these, or a STORE.",
)
latest_option = click.option(
    "--latest",
    is_flag=True,
    help="Read only the log of a folder that was written last. A folder keeps the logs of older runs.",
)


def finite(_context: click.Context, _parameter: click.Parameter, value: float | None) -> float | None:
    """Refuses nan and inf, which click takes for numbers of any range."""
    if value is not None and not math.isfinite(value):
        raise click.BadParameter(f"{value} is not a number of seconds.")
    return value


def one_of(*choices: str) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    """What a shell offers as the value of an option."""
    return lambda _context, _parameter, begun: [choice for choice in choices if choice.startswith(begun)]


def note(text: str) -> None:
    """To standard error: what is said beside the answer."""
    click.echo(text, err=True)


def chosen(trace: Sequence[str], latest: bool) -> list[str]:
    """The trace, or the newest of its logs."""
    from stepscope.viewer.ingest.sources import find_logs

    return [str(max(find_logs(trace), key=lambda log: log.mtime_ns).path)] if latest else [*trace]
