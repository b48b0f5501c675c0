"""Describes values: the content of a row, and what a launch read and wrote."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from stepscope.tracer.schema.statistics import NONFINITE, STATISTICS
from stepscope.viewer.findings.values.operations import Bad, operators
from stepscope.viewer.graphs.rows import SiteRow, SourceLine
from stepscope.viewer.values.queries.flow import FlowArgument
from stepscope.viewer.values.queries.values import LIMITS
from stepscope.viewer.values.rows import ValueRow

MOST_SHOWN = 6
_MOST_OPERATORS = 12
_FUSED = ("cpp", "triton")
_NEAR = 1e6
"""The limit of a dtype is named if the largest value times this reaches it."""
_TERMS = {name: STATISTICS[name].label.replace("−", "-") for name in NONFINITE}


def is_nan(row: ValueRow) -> bool:
    return bool(row.nan)


def is_infinite(row: ValueRow) -> bool:
    return bool(row.positive_infinity or row.negative_infinity)


def infinity(row: ValueRow) -> Bad:
    """Return ``-inf`` if all infinities of a tensor are negative."""
    return "-inf" if row.negative_infinity and not row.positive_infinity else "inf"


def is_bad(row: ValueRow) -> bool:
    return is_nan(row) or is_infinite(row)


def _badness(row: ValueRow) -> int:
    return 0 if is_nan(row) else 1 if is_infinite(row) else 2


def is_exact(row: ValueRow) -> bool:
    """Return whether the elements are integers or truth values, which are never NaN: indices, in most kernels."""
    return row.dtype.startswith(("int", "uint", "bool"))


def label(argument: FlowArgument) -> str:
    """Return the name of an argument, or the buffer if the name is an expression."""
    return argument.name if argument.name.isidentifier() else argument.buffer


def what(rows: Sequence[ValueRow]) -> str:
    """Return ``NaN``, ``+inf``, ``-inf``, ``+inf and -inf`` or ``finite``."""
    if any(row.nan for row in rows):
        return "NaN"
    return " and ".join(term for name, term in _TERMS.items() if any(getattr(row, name) for row in rows)) or "finite"


def number(value: float | int | None) -> str:
    """Return a number with at most six digits, integers without a fraction."""
    if value is None:
        return "unknown"
    if float(value).is_integer() and abs(value) < 10**7:
        return f"{int(value):,}"
    return f"{value:.6g}"


def describe(name: str, row: ValueRow) -> str:
    """Return ``buf17 NaN in 4 of 8 elements, first at [0, 3]`` or ``buf16 finite, largest magnitude 65,504 (…)``."""
    return f"{_named(name, row)} {_content(row)}"


def sentence(subject: str, verb: str, name: str, row: ValueRow) -> str:
    """Return what a launch read or wrote, such as ``matmul wrote buf3: +inf in 5 of 8,192 elements``."""
    return f"{subject} {verb} {_named(name, row)}: {_content(row)}"


def _named(name: str, row: ValueRow) -> str:
    part = f" ({row.part})" if row.part else ""
    item = f"[{row.item}]" if row.item is not None else ""
    return f"{name}{item}{part}"


def _content(row: ValueRow) -> str:
    if row.skipped is not None or row.nan is None:
        return f"not read ({row.skipped or 'no statistics'})"
    if row.numel == 0:
        return "is empty"
    is_sample = row.looked_at < row.numel
    of = f"{row.looked_at:,} sampled elements (of {row.numel:,})" if is_sample else f"{row.numel:,} elements"
    least = "at least " if row.at_least else ""
    counts = [f"{term} in {least}{count:,} of {of}" for name, term in _TERMS.items() if (count := getattr(row, name))]
    if not counts:
        zeros = f", zero in {row.zero:,} of {of}" if row.zero else ""
        return f"finite{' in ' + of if is_sample and not zeros else ''}{zeros}{_largest(row)}"
    first = row.first_bad_index if row.first_bad_index is not None else row.first_bad
    where = f", first at {first}" if first is not None else ""
    return ", ".join(counts) + where + (_largest(row, "; largest finite magnitude ") if row.largest is not None else "")


def _largest(row: ValueRow, before: str = ", largest magnitude ") -> str:
    if row.largest is None:
        return ""
    limit = LIMITS.get(row.dtype)
    is_near = limit is not None and row.largest * _NEAR >= limit
    shown = f" ({row.dtype} limit {number(limit)})" if is_near else f" ({row.dtype})"
    return f"{before}{number(row.largest)}{shown}"


def read(
    arguments: Sequence[FlowArgument], named: Callable[[str], str] = str, *, zeros_first: bool = False
) -> list[str]:
    """Return a line per input of a launch, those that are not finite first, integers last. `named` gives the names that
    are shown. An input that the launch overwrites is described as it was before."""

    def rank(argument: FlowArgument) -> tuple[int, bool, bool]:
        rows = argument.before
        are_exact = bool(rows) and all(map(is_exact, rows))
        return min(map(_badness, rows), default=2), are_exact, not (zeros_first and any(row.zero for row in rows))

    lines = []
    for argument in sorted(arguments, key=rank):
        if argument.before:
            name = f"{named(label(argument))}{' before the launch' if argument.after else ''}"
            lines += [describe(name, row) for row in argument.before]
        elif argument.held == "uninitialised":
            if argument.role == "in" and not argument.is_own:
                lines.append(f"{named(label(argument))} uninitialised: never written")
        else:
            lines.append(f"{named(label(argument))} not read")
    return _some(lines)


def largest_read(arguments: Sequence[FlowArgument]) -> tuple[str, float] | None:
    """Return ``finite inputs`` and the largest magnitude that a launch read. Integers count if it read nothing else."""
    rows = [row for argument in arguments for row in argument.before if row.largest is not None]
    inexact = [row for row in rows if not is_exact(row)]
    sizes = [row.largest for row in inexact or rows if row.largest is not None]
    if not sizes:
        return None
    kind = "finite" if len(inexact) == len(rows) else "finite floating-point" if inexact else "integer"
    return f"{kind} inputs", max(sizes)


def written(arguments: Sequence[FlowArgument]) -> list[str]:
    """Return a line per output of a launch, those that are not finite first."""
    rows = [(label(argument), row) for argument in arguments for row in argument.after]
    rows.sort(key=lambda pair: _badness(pair[1]))
    return _some([describe(name, row) for name, row in rows])


def elements(arguments: Sequence[FlowArgument], *, written: bool) -> list[dict[str, Any]]:
    """Return the elements of those tensors of which all were kept, read or written by a launch, for programs."""
    held = [(label(one), row) for one in arguments for row in (one.after if written else one.before)]
    held.sort(key=lambda pair: _badness(pair[1]))
    found = [elements_of(name, row, written=written) for name, row in held if row.elements is not None]
    return found[:MOST_SHOWN]


def elements_of(name: str, row: ValueRow, *, written: bool) -> dict[str, Any]:
    side = "out" if written else "in"
    return {"side": side, "argument": _named(name, row), "dtype": row.dtype, "elements": row.elements}


def _some(lines: list[str]) -> list[str]:
    rest = len(lines) - MOST_SHOWN
    return lines if rest <= 0 else [*lines[:MOST_SHOWN], f"and {rest:,} more"]


def is_certain(arguments: Sequence[FlowArgument]) -> bool:
    """Return whether all elements of every input were read."""
    return all(
        (argument.before and all(row.nan is not None and row.looked_at == row.numel for row in argument.before))
        or (argument.held == "uninitialised" and argument.role != "in")
        for argument in arguments
    )


def inside(site: SiteRow) -> str | None:
    """Return a sentence about the invisible operators in a fused kernel, or None for a kernel with one operator."""
    names = operators(site)
    if site.kind not in _FUSED or len(names) < 2:
        return None
    rest = f", and {len(names) - _MOST_OPERATORS:,} more" if len(names) > _MOST_OPERATORS else ""
    listed = ", ".join(names[:_MOST_OPERATORS])
    return f"One kernel computes {len(names)} operators ({listed}{rest}): the values inside it are not recorded"


def lines(site: SiteRow) -> list[str]:
    """Return all lines of the model that a fused kernel computes, each once."""
    found = [stack[-1] for stack in site.stacks if stack]
    return list(dict.fromkeys(line.place for line in found))


def place(source: SourceLine | None) -> str | None:
    return source.place if source else None
