"""Says in one sentence where the time of a step, or of a run, goes."""

from __future__ import annotations

from collections.abc import Sequence

from stepscope.viewer.speed.rows import DeviceTime, Part, RunSplit, StepSplit
from stepscope.viewer.text.formats import format_ns, plural

MOSTLY_COMPILING = 0.5
"""Share of the time of a run from which its verdict is about compilation."""
DEVICE_BOUND = 0.75
"""Share of the time of a step from which the work of the device is its verdict, since the host waits for it."""
RUNS_AHEAD = 1.1
"""Multiple of the time of a step from which the device works longer, because the host does not wait for it."""


def share_text(part_ns: int, whole_ns: int) -> str:
    """Return a share as ``62 %``, or ``less than 1 %``."""
    share = 100 * part_ns / whole_ns if whole_ns else 0
    return f"{share:.0f} %" if share >= 0.95 else "less than 1 %"


def step_verdict(split: StepSplit) -> str | None:
    """Return what takes most of the time of a step."""
    return _largest(split.parts, split.duration_ns, "this step")


def run_verdict(run: RunSplit, busy_ns: int | None = None) -> str | None:
    """Return what takes most of the time of a run, or of a typical step of it, in which devices work for `busy_ns`."""
    if run.steps > 1 and run.compile_ns >= MOSTLY_COMPILING * run.duration_ns:
        took = f"{format_ns(run.compile_ns)} of the {format_ns(run.duration_ns)} of {run.steps:,} steps"
        rest = _of_step(run, busy_ns, "a step that compiles nothing") if run.typical_steps else None
        is_quiet = all(part.kind != "compile" for part in run.parts)
        return f"Compilation took {took}." + (f" {rest}" if rest and is_quiet else "")
    return _of_step(run, busy_ns, "a step")


def _of_step(run: RunSplit, busy_ns: int | None, what: str) -> str | None:
    if busy_ns is None or busy_ns < DEVICE_BOUND * run.typical_ns:
        return _largest(run.parts, run.typical_ns, what)
    if busy_ns >= RUNS_AHEAD * run.typical_ns:
        return (
            f"The device works for {format_ns(busy_ns)} for {what}, longer than the {format_ns(run.typical_ns)} that"
            " the step takes on the host, which runs ahead of the device."
        )
    times = f"{format_ns(busy_ns)} of {format_ns(run.typical_ns)}"
    return f"The device works for {share_text(min(busy_ns, run.typical_ns), run.typical_ns)} of {what} ({times})."


def device_text(time: DeviceTime) -> str:
    """Return how long a device worked for a step, and for what."""
    idle, whole = share_text(time.idle_ns, time.duration_ns), format_ns(time.duration_ns)
    counted = [
        plural(count, what) for count, what in ((time.kernels, "kernel"), (time.collectives, "collective")) if count
    ]
    copies = ["1 copy or fill" if time.copies == 1 else f"{time.copies:,} copies and fills"] if time.copies else []
    work = ", ".join(counted + copies)
    streams = plural(time.streams, "stream")
    overlap = f" that overlap by {format_ns(time.overlap_ns)}" if time.streams > 1 and time.overlap_ns else ""
    text = (
        f"Device {time.device} is idle {idle} of its time for this step ({format_ns(time.idle_ns)} of {whole}):"
        f" {work} on {streams}{overlap} take {format_ns(time.work_ns)}."
    )
    if time.outside:
        are = "is" if time.outside == 1 else "are"
        text += f" {time.outside:,} of them ({format_ns(time.outside_ns)}) {are} outside of recorded launches."
    return text


def _largest(parts: Sequence[Part], whole_ns: int, what: str) -> str | None:
    if not parts or whole_ns <= 0:
        return None
    part = max(parts, key=lambda part: part.duration_ns)
    share = share_text(part.duration_ns, whole_ns)
    amount = f"{share} of {what} ({format_ns(part.duration_ns)} of {format_ns(whole_ns)})"
    return _SENTENCES[part.kind].format(amount=amount, place=part.place)


_SENTENCES = {
    "kernels": "Kernels take {amount}.",
    "launching": "Launching kernels takes {amount}; the device may work for longer.",
    "host": "Host work between the launches of compiled graphs takes {amount}.",
    "reading": "Host work between the launches of compiled graphs, in which the recorder also reads values, takes"
    " {amount}.",
    "break": "Host work at the graph break in {place} takes {amount}.",
    "between": "Python code between compiled graphs takes {amount}.",
    "after": "The time after the last compiled graph is {amount}.",
    "optimizer": "The step of the optimizer takes {amount}.",
    "compile": "Compilation takes {amount}.",
    "data": "Waiting for the next batch of a DataLoader takes {amount}.",
    "outside": "The time between the end of one step and the first compiled graph of the next is {amount}.",
}
