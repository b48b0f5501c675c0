"""Renders a comparison for a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from stepscope.viewer.compare.rows import (
    Comparison,
    Growth,
    KernelChange,
    LaunchDifference,
    Numbers,
    Place,
    Side,
    TensorDifference,
)
from stepscope.viewer.compare.shown import STATISTICS, number_text, shown_names
from stepscope.viewer.compare.times_text import time_lines
from stepscope.viewer.text.clean import clean
from stepscope.viewer.text.formats import plural
from stepscope.viewer.text.table import aligned
from stepscope.viewer.text.wrap import wrapped

MOST = 20
_MOST_CODE = 12
_MOST_INPUTS = 3
"""Number of inputs of which both sides' statistics are shown."""
_LONGEST_NAME = 28
_SIDES = ("left", "right")
_COUNTS = {
    "nan": "NaN", "positive_infinity": "+inf", "negative_infinity": "-inf", "zero": "zero", "numel": "elements",
    "dtype": "dtype",
}  # fmt: skip


def render(found: Comparison) -> str:
    """Return the text: the verdict, what may explain it, the numbers, the growth, and what was compared."""
    parts = [
        wrapped(found.sentence),
        _facts(found),
        _code(found),
        _inputs(found),
        _launches(found),
        _growth(found),
        time_lines(found.times, MOST) if found.times else [],
        _without_partner(found),
        _compared(found),
    ]
    return "\n\n".join("\n".join(clean(line).rstrip() for line in part) for part in parts if part)


def _facts(found: Comparison) -> list[str]:
    rows = [(fact.topic, fact.name, fact.left or "–", fact.right or "–") for fact in found.facts]
    return _listed("The runs differ in", [f"  {topic} {name}: {a}  →  {b}" for topic, name, a, b in rows])


def _code(found: Comparison) -> list[str]:
    changed = [pair for pair in found.graphs if pair.is_same_code is False]
    lines: list[str] = []
    for pair in changed:
        names = " and ".join(dict.fromkeys((pair.left.label, pair.right.label)))
        differing = f"{plural(pair.removed, 'line')} of the left side and {pair.added:,} of the right one differ"
        lines.append(f"  graph {names}: {differing}")
    lines += [line for change in found.kernel_changes for line in _kernel(change)]
    return _listed("The generated code differs in" if changed else "Arguments differ in", lines, 3 * MOST)


def _kernel(change: KernelChange) -> Iterator[str]:
    graph = f" of {change.graph}" if change.graph else ""
    yield f"  {change.kernel}{graph}{f', {change.source.place}' if change.source else ''}"
    if change.source and change.source.code:
        yield f"      {change.source.code}"
    for left, right in change.lines[:_MOST_CODE]:
        yield from (f"    {sign} {text.strip()}" for sign, text in (("-", left), ("+", right)) if text)
    if len(change.lines) > _MOST_CODE:
        yield f"    … and {len(change.lines) - _MOST_CODE} more lines"


def _inputs(found: Comparison) -> list[str]:
    first, others = found.inputs[:_MOST_INPUTS], found.inputs[_MOST_INPUTS:]
    lines = [line for one in first for line in [f"  {_where(one.place)} reads", *_tensor(one.tensor)]]
    if others:
        cells = [["other input", "launch", "largest"]]
        cells += [[one.tensor.known_name, str(one.place.left_launch), _relative(one.tensor.relative)] for one in others]
        lines += [f"  {line}" for line in aligned(cells, 1)]
    return _listed("Inputs that differ in the first call with a difference", lines, 3 * MOST)


def _launches(found: Comparison) -> list[str]:
    ending = "es" if found.noun == "launch" else "s"
    return [
        *_group(found, "agree", f"{found.noun.capitalize()}{ending} whose inputs agree and whose outputs differ"),
        *_group(found, "near", "The first difference, with inputs that differ by less than the tolerance"),
        *_group(found, "differ", "The first difference"),
        *_group(
            found,
            "unknown",
            f"{found.noun.capitalize()}{ending} whose outputs differ and whose inputs were not all read",
        ),
    ]


def _group(found: Comparison, inputs: str, title: str) -> list[str]:
    these = [one for one in found.launches if one.inputs == inputs]
    return _listed(title, [line for one in these for line in _launch(one)], 6 * MOST)


def _launch(one: LaunchDifference) -> Iterator[str]:
    times = f", and {plural(one.launches - 1, 'later launch')} of this site" * (one.launches > 1)
    yield f"  {_where(one.place)}{times}"
    if one.place.source:
        yield f"      {one.place.source.place}  {one.place.source.code}"
    for tensor in one.outputs:
        yield from _tensor(tensor)


def _where(place: Place) -> str:
    sides = f"{place.noun} {place.left_launch}" + (
        f" (right: {place.right_launch})" if place.right_launch != place.left_launch else ""
    )
    step = "" if place.left_step is None else f", step {place.left_step}"
    if place.right_step not in (place.left_step, None):
        step += f" (right: {place.right_step})" if step else f" (right: step {place.right_step})"
    return f"{sides}, {place.kernel}{place.of_graph}{step}"


def _tensor(tensor: TensorDifference) -> list[str]:
    name = tensor.known_name
    part = "".join(f", {what} {value}" for what, value in (("item", tensor.item), ("part", tensor.part)) if value)
    relative = f", relative difference up to {tensor.relative:.3g}" if tensor.relative else ""
    if tensor.relative == 0 and _is_alike(tensor):
        relative = ", other bits with equal statistics"
    counts = [
        key for key in _COUNTS if len({getattr(tensor.left, key), getattr(tensor.right, key), None}) == len(_SIDES) + 1
    ]  # equal counts say nothing about the difference
    names = [*shown_names(tensor.left, tensor.right), *counts]
    table = [
        ["", *(_COUNTS.get(key, key) for key in names)],
        ["left", *(_cell(tensor.left, key) for key in names)],
        ["right", *(_cell(tensor.right, key) for key in names)],
    ]
    return [f"    {name}{part}{relative}", *(f"      {line}" for line in aligned(table, 1))]


def _is_alike(tensor: TensorDifference) -> bool:
    return all(getattr(tensor.left, key) == getattr(tensor.right, key) for key in (*STATISTICS, *_COUNTS))


def _relative(number: float | None) -> str:
    """Return a relative difference; none can be computed if only counts differ, and it is 0 if only bits do."""
    return "–" if number is None else "bits" if number == 0 else f"{number:.2g}"


def _cell(numbers: Numbers, name: str) -> str:
    return number_text(getattr(numbers, name))


def _growth(found: Comparison) -> list[str]:
    rows = found.growth
    if not rows:
        return []
    if found.noun == "call":
        return _growth_of_calls(rows)
    cells = [["launch", "graph", "kernel", "buffer", "differs", "first", "last", "largest"]]
    for row in rows[:MOST]:
        numbers = (row.first_relative, row.last_relative, row.largest_relative)
        differs = f"{row.different} of {row.launches}"
        shown = map(_relative, numbers)
        cells.append([str(row.first_launch), row.graph or "", _short(row.kernel), _short(row.buffer), differs, *shown])
    lines = [f"  {line}" for line in aligned(cells, 4)]
    if len(rows) > MOST:
        lines.append(f"  … and {plural(len(rows) - MOST, 'more buffer')}; --json lists them")
    return ["How the relative difference grows over the buffers that are written", *lines]


def _growth_of_calls(rows: list[Growth]) -> list[str]:
    cells = [["call", "operator or kernel", "tensor", "difference"]]
    cells += [
        [str(row.first_launch), _short(row.kernel), _short(row.buffer), _relative(row.largest_relative)]
        for row in rows[:MOST]
    ]
    rest = [f"  … and {plural(len(rows) - MOST, 'more result')}; --json lists them"] if len(rows) > MOST else []
    lines = [f"  {line}" for line in aligned(cells, 3)]
    return ["How the relative difference grows over the results", *lines, *rest]


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST_NAME else f"{text[: _LONGEST_NAME - 1]}…"


def _without_partner(found: Comparison) -> list[str]:
    lines = [f"  {one.side}: {one.name}: {plural(one.count, one.what)}" for one in found.without_partner]
    return _listed("Without a partner on the other side", lines)


def _compared(found: Comparison) -> list[str]:
    done = found.compared
    what = (
        plural(done.launches, "call")
        if found.noun == "call"
        else f"{plural(done.graphs, 'graph')}, {plural(done.calls, 'call')}, {done.launches:,} launches"
    )
    texts = [
        f"Compared: {what} and {plural(done.value_rows, 'value row')}, of which {done.different_value_rows:,} differ.",
        f"{plural(done.not_comparable, 'pair')} of value rows could not be compared." if done.not_comparable else "",
        _criterion(found),
    ]
    sides = [f"{name}: {_side(side, found.noun)}" for name, side in (("left", found.left), ("right", found.right))]
    return [*sides, *wrapped(" ".join(text for text in texts if text))]


def _criterion(found: Comparison) -> str:
    """Return how tensors were compared."""
    statistics = (
        "counts exactly; minimum, maximum, mean and standard deviation up to a relative difference of"
        f" {found.tolerance:g}."
    )
    if found.compared_by == "hashes":
        return (
            "All were compared by the hashes of DebugMode, which must be equal; --tolerance compares norms."
            if found.by_bits
            else f"Norms may differ by a relative difference of {found.tolerance:g}."
        )
    if found.compared_by == "norms":
        return (
            "The norms of DebugMode were compared with what the statistics of the trace say of them, up to a relative"
            f" difference of {found.tolerance:g}."
        )
    done = found.compared
    if not done.by_digest:
        return f"Statistics were compared, not bits: {statistics}"
    if not found.by_bits:
        return f"Tensors whose digests are not equal were compared by statistics: {statistics}"
    if done.by_digest == done.value_rows:
        return "All were compared by their digests, so each bit counts; --tolerance compares statistics."
    rest = done.value_rows - done.by_digest
    return f"{plural(rest, 'pair')} without digests on both sides, by statistics: {statistics}"


def _side(side: Side, noun: str) -> str:
    parts = {"rank": side.rank, "log": side.log, "step": side.step}
    part = "".join(f", {name} {number}" for name, number in parts.items() if number is not None)
    return f"{', '.join(side.trace)}{part}: {plural(side.launches, noun)}, {plural(side.value_rows, 'value row')}"


def _listed(title: str, lines: list[str], most: int = MOST) -> list[str]:
    if not lines:
        return []
    rest = [f"  … and {plural(len(lines) - most, 'more line')}; --json lists everything"] if len(lines) > most else []
    return [title, *lines[:most], *rest]
