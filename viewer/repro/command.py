"""The command `stepscope repro`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def repro(
    trace: Annotated[list[str], typer.Argument(metavar="TRACE...", help="As of `stepscope summary`.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The script to write.")],
    launch: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="The launch: as addresses of pages and `summary --json` number it; with --step the N-th of that step."
            " [default: that of the worst finding]",
            show_default=False,
        ),
    ] = None,
    step: Annotated[int | None, typer.Option(metavar="STEP", help="N counts in this step, from 1.")] = None,
    rank: Annotated[int | None, typer.Option(metavar="RANK", help="With --step, where several logs have it.")] = None,
    embed_bytes: Annotated[
        int,
        typer.Option(metavar="BYTES", min=0, help="Most bytes of saved tensors in the script; others lie beside it."),
    ] = 1 << 20,
    force: Annotated[bool, typer.Option("--force", help="Write over files that are there.")] = False,
) -> None:
    """A script that runs one launch again, compares, and with --bench times it.

    It holds the kernel's source, the arguments and what was recorded, and needs torch only.

    THE SCRIPT RUNS CODE FROM THE LOG, the source of the kernel: read it before you run it.
    """
    from stepscope.viewer.errors import StepscopeError
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
    typer.echo(f"{written.path}: {written.kernel}, {written.where}")
    for path in written.files:
        typer.echo(f"{path}: a saved tensor; it belongs beside the script")
    for text in written.made_up:
        typer.echo(f"made up: {text}")
    typer.echo(f"It runs code from the log: read it first. Then: python {written.path}   or with --bench")
