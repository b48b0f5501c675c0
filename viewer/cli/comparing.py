"""The command that lays two traces side by side: `stepscope compare`."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from stepscope.viewer.cli.commands import (
    ExplainedArgument,
    ReadingCommand,
    chosen,
    echo_json,
    finite,
    json_option,
    latest_option,
)
from stepscope.viewer.compare.rows import TOLERANCE
from stepscope.viewer.errors import StepscopeError

_SIDE = "A trace, or a part of it: TRACE#step=3, TRACE#rank=0 or TRACE#log=0; or a log that PyTorch's DebugMode saved."


@click.command(cls=ReadingCommand)
@click.argument("left", cls=ExplainedArgument, metavar="A", type=click.Path(readable=False), explanation=_SIDE)
@click.argument("right", cls=ExplainedArgument, metavar="B", type=click.Path(readable=False), explanation=_SIDE)
@click.option(
    "--tolerance",
    type=click.FloatRange(min=0),
    callback=finite,
    metavar="X",
    help="Take tensors as equal whose minimum, maximum, mean and standard deviation differ by at most this relative "
    f"difference. [default: equal digests, or else {TOLERANCE:g}]",
)
@click.option(
    "-o",
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE.html",
    help="Also write the comparison as one HTML file that asks the network for nothing.",
)
@json_option
@latest_option
def compare(left: str, right: str, tolerance: float | None, out: Path | None, as_json: bool, latest: bool) -> None:
    """Find the first launch whose results differ between two runs. Exit with 1 if anything differs."""
    from dataclasses import replace

    from stepscope.viewer.compare import compare as comparing
    from stepscope.viewer.compare.text import render

    ours, theirs = (replace(side, trace=chosen(side.trace, latest)) for side in map(comparing.wanted, (left, right)))
    found = comparing.compare(ours, theirs, tolerance)
    if out is not None:
        from stepscope.viewer.compare.html import render_html

        try:
            out.write_text(render_html(found), "utf-8")
        except OSError as error:
            raise StepscopeError(f"{out} cannot be written: {error.strerror}") from None
    if as_json:
        echo_json(found)
    else:
        sys.stdout.write(render(found) + "\n")
    sys.exit(int(found.has_difference))
