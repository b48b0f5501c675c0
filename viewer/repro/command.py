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
            help="As pages and `summary` number it. [default: the launch of the worst finding]",
            show_default=False,
        ),
    ] = None,
    embed_bytes: Annotated[
        int,
        typer.Option(metavar="BYTES", min=0, help="Most bytes of saved tensors in the script; others lie beside it."),
    ] = 1 << 20,
    force: Annotated[bool, typer.Option("--force", help="Write over files that are there.")] = False,
) -> None:
    """A script that runs one launch again and compares; --bench times it.

    It holds the kernel's source, the arguments and what was recorded, and needs torch only. It runs code from the
    log, the source of the kernel: read it before you run it.
    """
    from viewer.repro.write import chosen_launch, write_reproducer
    from viewer.store.open import open_trace

    with open_trace(trace) as opened:
        number = chosen_launch(opened) if launch is None else launch
        written = write_reproducer(opened, number, out, embed_bytes=embed_bytes, force=force)
    typer.echo(f"{written.path}: {written.kernel}, {written.where}")
    for path in written.files:
        typer.echo(f"{path}: a saved tensor; it belongs beside the script")
    for text in written.made_up:
        typer.echo(f"made up: {text}")
    typer.echo(f"It runs code from the log: read it first. Then: python {written.path}   or with --bench")
