"""The command `stepscope repro`."""

from __future__ import annotations

from pathlib import Path

import click

from stepscope.viewer.cli.commands import NUMBER, ReadingCommand, file_option, words
from stepscope.viewer.errors import StepscopeError


@click.command(cls=ReadingCommand)
@words("TRACE...", "A trace, as `stepscope summary` takes it.")
@file_option(metavar="FILE", required=True, help="Write the script to this file.")
@click.option(
    "--launch",
    type=NUMBER,
    metavar="N",
    help="Take the launch with this number, as in page addresses and `summary --json`, or with --step the N-th of "
    "that step. [default: the launch of the worst finding]",
)
@click.option("--step", type=NUMBER, metavar="STEP", help="Count the launches in this step, from 1.")
@click.option("--rank", type=NUMBER, metavar="RANK", help="Take the step of this rank, if several logs have it.")
@click.option(
    "--embed-bytes",
    type=NUMBER,
    metavar="BYTES",
    default=1 << 20,
    help="Embed at most this many bytes of saved tensors in the script; other tensors are written beside it.",
)
@click.option("--force", is_flag=True, help="Overwrite existing files.")
def repro(
    trace: list[str],
    out: Path,
    launch: int | None,
    step: int | None,
    rank: int | None,
    embed_bytes: int,
    force: bool,
) -> None:
    """Write a script that runs one launch again, compares the results, and with --bench times it.

    It holds the kernel's source, the arguments and what was recorded, and needs torch only.

    THE SCRIPT RUNS CODE FROM THE LOG, the source of the kernel: read it before you run it.
    """
    from stepscope.viewer.repro.write import launch_in_step, worst_launch, write_reproducer
    from stepscope.viewer.store.open import open_trace

    if launch is None and step is not None:
        raise StepscopeError("--step needs --launch N, the N-th launch of that step.")

    with open_trace(trace) as opened:
        if launch is None:
            number = worst_launch(opened)
        else:
            number = launch if step is None else launch_in_step(opened, launch, step, rank)
        written = write_reproducer(opened, number, out, embed_bytes=embed_bytes, force=force)
    click.echo(f"{written.path}: {written.kernel}, {written.where}")
    for path in written.files:
        click.echo(f"{path}: a saved tensor; keep it beside the script")
    for text in written.made_up:
        click.echo(f"The following value is made up: {text}")
    click.echo(
        "The script runs code from the log, so read it first. "
        f"Run it with `python {written.path}`, and add --bench to time it."
    )
