"""Formats numbers. static/js/core/format.js does the same and is tested with the same cases."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Any

import orjson

_TIME_UNITS = ((1, "ns"), (1_000, "us"), (1_000_000, "ms"), (1_000_000_000, "s"))
_BAR_CELLS = 24


def format_ns(value: int | None) -> str:
    """Return a duration with three digits: 850 ns, 4.20 us, 12.3 ms, 1,234 s."""
    if value is None:
        return "–"
    for size, unit in _TIME_UNITS:
        scaled = value / size
        if abs(scaled) < 999.5 or unit == "s":
            break
    if unit == "ns" or abs(scaled) >= 99.95:
        return f"{scaled:,.0f} {unit}"
    return f"{scaled:.{2 if abs(scaled) < 9.995 else 1}f} {unit}"


_LONG_UNITS = ((86_400_000_000_000, "d"), (3_600_000_000_000, "h"), (60_000_000_000, "min"))


def format_long(value: int) -> str:
    """Return a duration in the largest of days, hours and minutes of which it has two: 2.5 h, 227 d."""
    found = next(((size, unit) for size, unit in _LONG_UNITS if value >= 2 * size), None)
    if found is None:
        return format_ns(value)
    size, unit = found
    return f"{value / size:,.{1 if value < 10 * size else 0}f} {unit}"


def format_bytes(value: int | None) -> str:
    """Return a size in powers of 1000 with one decimal: 512 B, 116.8 kB."""
    if value is None:
        return "–"
    if abs(value) < 1000:
        return f"{value} B"
    scaled = value / 1000
    for unit in ("kB", "MB", "GB"):
        if abs(scaled) < 999.95:
            return f"{scaled:.1f} {unit}"
        scaled /= 1000
    return f"{scaled:,.1f} TB"


def format_count(value: int | None) -> str:
    return "–" if value is None else f"{value:,}"


def format_value(value: float | None) -> str:
    """Return an element of a tensor: whole numbers with separators, others with four digits."""
    if value is None:
        return "–"
    if not math.isfinite(value):
        return str(value)
    size = abs(value)
    if size < 1e12 and value == int(value):
        return f"{int(value):,}"
    if not 1e-3 <= size < 1e7:
        digits, _, power = f"{value:.3e}".partition("e")
        digits = digits.rstrip("0").rstrip(".")
        return f"{digits}e{int(power)}"
    whole, _, fraction = f"{value:,.{max(0, 3 - _power(size))}f}".partition(".")
    fraction = fraction.rstrip("0")
    return f"{whole}.{fraction}" if fraction else whole


def _power(size: float) -> int:
    """Return the power of ten after rounding to four digits: that of 9.9999 is the one of 10."""
    return int(f"{size:.3e}".partition("e")[2])


def plural(value: int, noun: str) -> str:
    """Return a number and a noun: 1 launch, 2 launches, 2 graphs."""
    if value == 1:
        return f"1 {noun}"
    ending = "es" if noun.endswith(("ch", "sh", "s", "x")) else "s"
    return f"{value:,} {noun}{ending}"


def nth(value: int) -> str:
    """Return an ordinal: 1st, 2nd, 3rd, 4th, 11th, 1,021st."""
    ending = "th" if value % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(value % 10, "th")
    return f"{value:,}{ending}"


def launch_text(launch: int | None, step: int | None, ordinal: int | None = None) -> str:
    """Return a launch and its step: ``launch 61 of step 2``. The number is that of addresses, the search box and
    ``repro --launch``; a launch without one is ``the 4th launch of step 2`` if its position in the step is known."""
    name = f"launch {launch}"
    if launch is None:
        name = "a launch" if ordinal is None or step is None else f"the {nth(ordinal)} launch"
    return name if step is None else f"{name} of step {step}"


def steps_text(steps: Sequence[int]) -> str:
    """Return ascending steps as `numbers_text` does."""
    return numbers_text("step", steps)


def numbers_text(noun: str, numbers: Sequence[int]) -> str:
    """Return ascending numbers: ``step 3``, ``steps 0 and 1``, ``steps 2 to 5``, ``16 steps from 2 to 90``, or ""."""
    if len(numbers) < 2:
        return f"{noun} {numbers[0]}" if numbers else ""
    if len(numbers) > 2 and numbers[-1] - numbers[0] == len(numbers) - 1:
        return f"{noun}s {numbers[0]} to {numbers[-1]}"
    if len(numbers) <= _MOST_NUMBERS:
        return f"{noun}s {', '.join(map(str, numbers[:-1]))} and {numbers[-1]}"
    return f"{len(numbers):,} {noun}s from {numbers[0]} to {numbers[-1]}"


_MOST_NUMBERS = 4


def known_name(name: str, program_name: str | None) -> str:
    """Return the name of a tensor in the program and in its graph, ``self.head.weight (primals_3)``, or the latter."""
    return f"{program_name} ({name})" if program_name else name


def capitalized(text: str) -> str:
    """Return a text with a capital letter at its beginning."""
    return text[:1].upper() + text[1:]


_WITHOUT_ARTICLE = re.compile(r"(?:(attribute|closure variable|local variable|value) |[A-Za-z_]\w* of \d)")


def holder_text(holder: str) -> str:
    """Return what holds a storage, with an article: ``a list of 3 in keep``, ``the attribute kept of Net``."""
    found = _WITHOUT_ARTICLE.match(holder)
    if found is None:
        return holder
    return f"the {holder}" if found[1] else f"{'an' if holder[0] in 'aeiouAEIOU' else 'a'} {holder}"


def basename(path: str | None) -> str:
    return (path or "–").replace("\\", "/").rsplit("/", 1)[-1]


def shape_text(sizes: object) -> str:
    if not isinstance(sizes, (list, tuple)):
        return "–" if sizes is None else str(sizes)
    return "[" + ", ".join(str(size) for size in sizes) + "]"


_NUMBERED = {"pid", "rank", "step", "launch", "graph", "line", "log", "thread"}
"""Numbers that are names and not amounts; their digits are not grouped."""


_POSITIONS = {"expected": "expected position", "actual": "actual position"}
_WORDS = {
    "has_ring": "launch ring", "in": "inputs", "out": "outputs", "with": "other arguments", "not_read": "not read",
    "origin": "origin", "certain": "all inputs were read", "inside": "inside the kernel", "aten": "ATen operators",
    "fx_nodes": "FX nodes", "of": "launches in the step", "launch_in_step": "position in the step",
    "leaves_the_graph": "leaves the graph", "explains_launches": "reached launches", "in_steps": "in steps",
    "lines": "lines of the model", "stack": "stack of the line", "chain": "path of the value",
    "expected_snode": "expected scheduler node", "actual_snode": "actual scheduler node",
    "peak_snode": "scheduler node of the peak", "cpp_raised": "raised in C++", "cpp_stack": "C++ stack",
}  # fmt: skip
"""Labels of facts whose names are not words."""
_UNITS = ("_unix_ns", "_ns", "_bytes")


def evidence_label(name: str, value: object) -> str:
    """Return the label of a fact of a finding, without the unit if its value shows it."""
    if name in _WORDS:
        return _WORDS[name]
    is_amount = isinstance(value, int) and not isinstance(value, bool)
    if name in _POSITIONS and is_amount:
        return _POSITIONS[name]
    unit = next((unit for unit in _UNITS if name.endswith(unit)), "") if is_amount else ""
    return name.removesuffix(unit).removeprefix("is_").replace("_", " ")


def evidence_text(value: object, name: str = "") -> str:
    """Return the text of a fact of a finding; its name determines the unit."""
    if value is None or value == [] or value == {}:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return _amount(value, name)
    if isinstance(value, float):
        return f"{value:,.4g}"
    if isinstance(value, (list, tuple)) and name == "elements":
        return f"[{', '.join(map(str, value))}]"
    if isinstance(value, (list, tuple)):
        return ", ".join(evidence_text(item, name) for item in value)
    if isinstance(value, dict):
        return ", ".join(f"{key} {evidence_text(item, str(key))}" for key, item in value.items())
    return str(value)


def _amount(value: int, name: str) -> str:
    if name.endswith("unix_ns"):
        return f"{datetime.fromtimestamp(value / 1e9, timezone.utc):%Y-%m-%d %H:%M:%S} UTC"
    if name.endswith("_ns"):
        return format_ns(value)
    if "bytes" in name.split("_"):
        return format_bytes(value)
    return str(value) if name.split("_")[-1].removesuffix("s") in _NUMBERED else format_count(value)


def to_json(value: Any, **_: object) -> str:
    """Return JSON as templates and answers of the server contain it."""
    return orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS).decode()


def progress_bar(share: float) -> str:
    """Return a bar of text for a share from 0 to 1, with its percentage."""
    return f"{('█' * round(share * _BAR_CELLS)).ljust(_BAR_CELLS, '░')} {share:.0%}"
