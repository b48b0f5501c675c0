"""The command `stepscope`: the one place that joins the recorder and the viewer."""

from __future__ import annotations

import gc
import io
import signal
import sys
from importlib import import_module

import click

from stepscope.viewer.errors import StepscopeError

COMMANDS = {
    "run": "recording",
    "summary": "reading",
    "serve": "reading",
    "report": "reading",
    "check": "ask",
    "search": "ask",
    "sql": "ask",
    "tensor": "ask",
    "repro": "reproducing",
    "export": "reading",
    "ingest": "reading",
    "import-aoti": "recording",
    "demo": "recording",
}
"""Each command by its name, with the module of this package that has it as a function of that name."""


class Commands(click.Group):
    """The commands; the module of one is imported when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*COMMANDS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"stepscope.viewer.cli.{COMMANDS[cmd_name]}")
        command: click.Command = getattr(module, cmd_name.replace("-", "_"))
        return command


def _print_versions(ctx: click.Context, _parameter: click.Parameter, wanted: bool) -> None:
    if wanted:
        from stepscope.viewer.cli.versions import versions

        click.echo(versions())
        ctx.exit()


@click.group(cls=Commands, invoke_without_command=True)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_versions,
    help="Show the versions of stepscope, torch and Python.",
)  # fmt: skip
@click.pass_context
def app(ctx: click.Context) -> None:
    """Record PyTorch programs compiled with torch.compile, and read what was recorded."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help(), err=True)
        ctx.exit(2)


def main() -> None:
    """Entry point. Errors are one sentence on standard error; exit code 2."""
    gc.set_threshold(50_000)  # What dies in a cycle is little, and looking for it takes a twentieth of the time.
    if isinstance(sys.stdout, io.TextIOWrapper):  # a terminal that cannot show a character gets its number
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        sys.exit(app.main(prog_name="stepscope", standalone_mode=False) or 0)
    except StepscopeError as error:
        _end(f"stepscope: {error}", error.exit_code)
    except click.ClickException as error:
        _end(_sentence(error), 2)
    except (KeyboardInterrupt, click.Abort):
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # Whoever presses Ctrl-C twice does not wait for threads.
        sys.exit(130)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(0)


def _end(sentence: str, exit_code: int) -> None:
    click.echo(sentence, err=True)
    sys.exit(exit_code)


def _sentence(error: click.ClickException) -> str:
    """What is wrong with a command line, in one line that begins with the command."""
    context = getattr(error, "ctx", None)
    where = context.command_path if context else "stepscope"
    return f"{where}: {' '.join(error.format_message().split())}"
