"""Words for the line of the program that takes most of some time outside of compiled code."""

from __future__ import annotations

from stepscope.viewer.graphs.rows import SourceLine
from stepscope.viewer.speed.queries.gap_lines import HotLine
from stepscope.viewer.text.formats import basename, plural


def mostly(hot: HotLine | None, told: str = "") -> str:
    """Return text like ``, mostly at train.py:30`` or ``, mostly in lines 30 to 33 of train (train.py)``, or "" if no
    line is known, or if it is the one at the end of what is `told` before."""
    if hot is None:
        return ""
    if hot.function is not None and hot.inside is not None:
        return f", mostly in {_lines(hot.inside)} of {hot.function} ({basename(hot.innermost.file)})"
    if told.endswith(f" {_place(hot.source)}") and not hot.is_after:
        return ""
    return f", mostly {'in Python code up to' if hot.is_after else 'at'} {_place(hot.source)}"


def samples_text(hot: HotLine | None) -> list[str]:
    """Return sentences that say how much of the time passes in the line, what it runs, and what calls it."""
    if hot is None:
        return []
    source = hot.source
    samples = f"{round(hot.share * hot.samples):,} of {plural(hot.samples, 'sample')}"
    function = f" in {source.function}" if source.function != "<module>" else ""
    code = f": {source.code}" if source.code else ""
    told = [f"In {samples} of this time the program is at {_place(source)}{function}{code}"]
    if hot.is_after:
        told.append(_AFTER)
    if hot.function is not None and hot.inside is not None:
        told.append(f"Most of these samples are in {_lines(hot.inside)} of {hot.function}.")
    callers = [line for line in hot.callers if line.code][-2:]
    return [*told, *[f"This is called at {_place(line)}: {line.code}" for line in reversed(callers)]]


_AFTER = (
    "Before most of these samples it computed in Python, and let other threads look only there: the time passes in the"
    " code up to and including this line."
)


def _lines(inside: tuple[int, int]) -> str:
    first, last = inside
    return f"line {first}" if first == last else f"lines {first} to {last}"


def _place(line: SourceLine) -> str:
    return f"{basename(line.file)}:{line.line}"
