"""The command that measures this machine: `stepscope measure`."""

from __future__ import annotations

import click

from stepscope.tracer.schema.machine import MEMORY
from stepscope.viewer.cli.commands import Command, echo_json, json_option
from stepscope.viewer.errors import StepscopeError


@click.command(cls=Command)
@json_option
def measure(as_json: bool) -> None:
    """Measure the memory and the arithmetic of this machine; later recordings compare their kernels with it.

    Run it once on each kind of machine while nothing else runs there. It takes some seconds, 512 MiB of memory, and
    2 GiB of the memory of each GPU. Running it again replaces the figures.
    """
    from importlib.util import find_spec

    if find_spec("torch") is None:
        raise StepscopeError("The measurement uses torch, which is not installed: pip install 'stepscope[capture]'")
    from stepscope.tracer.runtime.machine import cpu_model
    from stepscope.tracer.runtime.machine_limits import figures_file, measure

    try:
        found = measure(cpu_model())
    except OSError as error:
        raise StepscopeError(f"{figures_file()} cannot be written: {error.strerror}") from None
    except RuntimeError as error:
        raise StepscopeError(f"The machine cannot be measured: {str(error).splitlines()[0]}") from None
    if as_json:
        echo_json(found)
        return
    for device, figures in found.items():
        click.echo(f"{device}: memory {figures.get(MEMORY, 0) / 1e9:,.1f} GB/s")
        for dtype, figure in figures.items():
            if dtype != MEMORY:
                click.echo(f"{device}: products of {dtype} {figure / 1e9:,.1f} Gop/s")
    click.echo("Recordings that begin from now on hold these figures; their page /limits compares kernels with them.")
