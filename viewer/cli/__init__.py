"""The command `stepscope`, the only place that imports both the recorder and the viewer."""

from __future__ import annotations

import gc
import io
import signal
import sys
from difflib import get_close_matches
from importlib import import_module

import click

from stepscope.tracer._version import __version__
from stepscope.viewer.errors import StepscopeError

GROUPS = {
    "Record": {"run": "recording", "import-aoti": "recording", "measure": "measuring", "demo": "recording"},
    "Read": {
        "summary": "reading",
        "findings": "reading",
        "serve": "reading",
        "search": "ask",
        "sql": "ask",
        "tensor": "ask",
        "compare": "comparing",
    },
    "Write a ticket": {"report": "reporting", "repro": "reproducing"},
    "Check in CI": {"check": "checking"},
    "Use other tools": {"export": "reading", "ingest": "reading"},
}
"""Commands by purpose, with the module of this package that contains the function of each."""
COMMANDS = {name: module for commands in GROUPS.values() for name, module in commands.items()}
WIDEST_HELP = 120
FIRST_COMMANDS = (
    ("Record a program:", "stepscope run -- python train.py"),
    ("Look at the trace:", "stepscope serve stepscope_trace"),
    ("Attach it to a ticket:", "stepscope report stepscope_trace"),
)


class Commands(click.Group):
    """The group of commands, whose modules are imported on demand."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*COMMANDS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"stepscope.viewer.cli.{COMMANDS[cmd_name]}")
        command: click.Command = getattr(module, cmd_name.replace("-", "_"))
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in COMMANDS and not name.startswith("-"):
            near = get_close_matches(name, COMMANDS, 1)
            hint = f"Did you mean `stepscope {near[0]}`?" if near else "`stepscope --help` lists all commands."
            raise click.UsageError(f"There is no command {name!r}. {hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        widest = max(map(len, COMMANDS))
        for title, names in GROUPS.items():
            commands = [(name.ljust(widest), self.get_command(ctx, name)) for name in names]
            with formatter.section(title):
                formatter.write_dl([(name, command.get_short_help_str()) for name, command in commands if command])


def _print_versions(ctx: click.Context, _parameter: click.Parameter, wanted: bool) -> None:
    """Print the versions of stepscope, torch and Python in one line, without importing torch, which takes seconds."""
    if wanted:
        import platform
        from importlib.metadata import PackageNotFoundError, version

        try:
            torch = f"torch {version('torch')}"
        except PackageNotFoundError:
            torch = "no torch"
        click.echo(f"stepscope {__version__} ({torch}, Python {platform.python_version()})")
        ctx.exit()


@click.group(
    cls=Commands, invoke_without_command=True,
    context_settings={"show_default": True, "max_content_width": WIDEST_HELP},
)  # fmt: skip
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_versions,
    help="Show the versions of stepscope, torch and Python.",
)  # fmt: skip
@click.pass_context
def app(ctx: click.Context) -> None:
    """Record PyTorch programs compiled with torch.compile, and read what was recorded."""
    if ctx.invoked_subcommand is None:
        click.echo(_first_commands(), err=True)
        ctx.exit(2)


def _first_commands() -> str:
    """Return the text for a command line without a command: the three commands that a new user needs."""
    lines = [f"  {purpose:<24}{command}" for purpose, command in FIRST_COMMANDS]
    return "\n".join(
        [
            "stepscope records PyTorch programs compiled with torch.compile and shows what happened in them.",
            "",
            *lines,
            "",
            "`stepscope --help` lists all commands, and `stepscope COMMAND --help` explains one.",
        ]
    )


def main() -> None:
    """Run the command line; an error is one sentence on standard error and, by default, exit code 2."""
    gc.set_threshold(50_000)  # Garbage in cycles is rare, and searching for it takes 5 % of the time.
    if isinstance(sys.stdout, io.TextIOWrapper):  # characters that the terminal cannot show are escaped
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        sys.exit(app.main(prog_name="stepscope", standalone_mode=False) or 0)
    except StepscopeError as error:
        _end(f"stepscope: {error}", error.exit_code)
    except click.ClickException as error:
        _end(_sentence(error), 2)
    except (KeyboardInterrupt, click.Abort):
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # A second Ctrl-C does not wait for threads.
        sys.exit(130)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(0)


def _end(sentence: str, exit_code: int) -> None:
    click.echo(sentence, err=True)
    sys.exit(exit_code)


def _sentence(error: click.ClickException) -> str:
    """Return an error in the command line as one line that starts with the command."""
    context = getattr(error, "ctx", None)
    where = context.command_path if context else "stepscope"
    hint = f" `{where} --help` explains it." if isinstance(error, click.MissingParameter) else ""
    return f"{where}: {' '.join(error.format_message().split())}{hint}"
