"""Converts printed numbers to the scalars of launch sites, and to their values in a call.

The printer names an argument by its expression in the generated code; each expression that is not a constant becomes a
symbol.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from stepscope.tracer.aoti.printed_launches import LaunchPrints, ModelRun
from stepscope.tracer.aoti.printer_output import PrintedScalar
from stepscope.tracer.schema.scalars import Assignment, InputSize, Scalar

_CONSTANT = re.compile(r"(-?\d+)L?")
_LARGEST = 2**63


def scalars(site: int, launch: LaunchPrints) -> list[Scalar]:
    return [_scalar(site, position, launch.kernel, one) for position, one in launch.scalars]


def symbols(run: ModelRun) -> list[str]:
    """Return the distinct symbols of a run in the order in which they were printed."""
    return list(dict.fromkeys(name for name, _, _ in _values(run)))


def assignment(names: list[str], run: ModelRun, sizes: Sequence[InputSize] = ()) -> Assignment | None:
    """Return the values of the symbols in one run, with an entry for each change, or None if there are none.

    `sizes` are symbols that are sizes of the inputs, which are printed.
    """
    found = Assignment([], [], [])
    last: dict[str, int | None] = {}
    for name, launches, value in (*_sizes(run, sizes), *_values(run)):
        if name in names and (name not in last or last[name] != value):
            last[name] = value
            found.symbol.append(names.index(name))
            found.launches.append(launches)
            found.value.append(value)
    return found if found.symbol else None


def _sizes(run: ModelRun, sizes: Sequence[InputSize]) -> Iterator[tuple[str, int, int | None]]:
    for one in sizes:
        size = run.inputs[one.input].size if one.input in run.inputs else None
        if size is not None and one.dimension < len(size):
            yield one.symbol, 0, size[one.dimension]


def _values(run: ModelRun) -> list[tuple[str, int, int | None]]:
    """Return (symbol, number of launches before, value) for each number; values with more than 64 bits are None."""
    return [
        (_symbol(site, position, one), site, one.value if -_LARGEST <= one.value < _LARGEST else None)
        for site, launch in enumerate(run.launches)
        for position, one in launch.scalars
        if not _CONSTANT.fullmatch(one.argument)
    ]


def _scalar(site: int, position: int, kernel: str, one: PrintedScalar) -> Scalar:
    constant = _CONSTANT.fullmatch(one.argument)
    if constant:
        return Scalar(position, None, constant[1], "int64_t")
    name = one.argument.removeprefix(f"{kernel}_")  # the wrapper computes the kernel's `xnumel` into such a variable
    expression = _symbol(site, position, one)
    return Scalar(position, name if name.isidentifier() and name != one.argument else None, expression, "int64_t")


def _symbol(site: int, position: int, one: PrintedScalar) -> str:
    return one.argument if one.argument.isidentifier() else f"argument_{position}_of_site_{site}"
