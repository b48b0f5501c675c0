"""Collects the steps of a report: timelines, and the panels of their launches."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, NamedTuple

from stepscope.viewer.findings.crash.launch_deaths import launch_deaths
from stepscope.viewer.judged.queries.verdicts import judged_launches
from stepscope.viewer.report.contents import MOST_VALUES, Contents, chosen
from stepscope.viewer.speed.queries.device_work import step_device_times
from stepscope.viewer.speed.queries.splits import step_split
from stepscope.viewer.steps.marks import curve_marks, step_marks
from stepscope.viewer.steps.page import LaunchPage, launch_page_of
from stepscope.viewer.steps.queries.finding_launches import finding_places
from stepscope.viewer.steps.queries.steps import timeline
from stepscope.viewer.steps.rows import CallRow, Timeline
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.web.parts import part

MOST_STEPS = 16
MOST_LAUNCHES = 20_000
"""Maximum number of launches in all timelines together."""
MOST_PANELS = 320
"""Maximum number of launches with a full description, which repeated calls share."""


def collect(trace: Trace, contents: Contents) -> None:
    """Collect steps as far as the budget goes: first those with findings, then the others in order."""
    contents.shown["deaths"] = part("How processes died", {}, launch_deaths, trace)
    found = contents.named_pages()
    order = sorted(contents.overview.steps, key=lambda row: (row.step, row.log))
    rows = chosen(
        order,
        MOST_STEPS,
        lambda row: f"/steps/{row.step}?log={row.log}" in found,
        lambda row: (f"/steps/{row.step}?log={row.log}" not in found, row.step, row.log),
    )
    room = MOST_LAUNCHES
    shown = []
    for row in rows:
        # The minimum is a small picture, so that each listed step is visible.
        width = max(200, min(room, row.launch_rows))
        picture = part(f"Step {row.step}", None, timeline, trace, row.log, row.step, width=width)
        if picture is None:
            continue
        room = max(0, room - len(picture.launches.launch))
        shown.append((row, picture))
    _collect_panels(trace, contents, [picture for _, picture in shown])
    contents.shown["verdicts"] = {
        one.launch: one
        for row, _ in shown
        for one in part(f"The verdicts on step {row.step}", [], judged_launches, trace, row.log, row.step)
        if one.launch is not None
    }
    contents.shown["places"] = part("The findings of steps", {}, finding_places, trace, contents.overview.findings)
    contents.shown["steps"] = sorted(shown, key=lambda pair: (pair[0].log, pair[0].step))
    contents.shown["splits"] = {
        f"{row.log} {row.step}": part(f"The time of step {row.step}", None, step_split, trace, row.log, row.step)
        for row, _ in shown
    }
    contents.shown["devices"] = {
        f"{row.log} {row.step}": part(
            f"The devices in step {row.step}", [], step_device_times, trace, row.log, row.step
        )
        for row, _ in shown
    }
    contents.say_left_out(len(contents.overview.steps), len(shown), "steps")


def data(contents: Contents) -> dict[str, Any]:
    """Return the data that the report's scripts draw: timelines, and the panels that their launches share."""
    overview = contents.overview
    return {
        "steps": [picture for _, picture in contents.shown["steps"]],
        "panels": [[_without_values(page) for page in panels] for panels in contents.shown["panels"]],
        "calls": contents.shown["calls"],
        "marks": {
            f"{row.log} {row.step}": step_marks(overview.findings, contents.shown["places"], row.log, row.step)
            for row, _ in contents.shown["steps"]
        },
        "curve_marks": {
            str(run.log): curve_marks(overview.findings, {run.log for run in overview.runs}, run.log)
            for run in overview.runs
        },
        "deaths": contents.shown["deaths"],
        "judged": contents.shown["verdicts"],
    }


def _without_values(page: LaunchPage | None) -> LaunchPage | None:
    """Return a panel without the parts that differ between calls: values, the verdict of the judge, the role in a
    death, and what the profiler saw. Its code has coloured lines, too."""
    shown = page and replace(page, launch=replace(page.launch, values=[], code=None), death=None, judged=None)
    return shown and replace(shown, operators=[], work=[])


def _collect_panels(trace: Trace, contents: Contents, timelines: Iterable[Timeline]) -> None:
    """Collect the descriptions of launches, one for all calls that launch the same sites in the same order."""
    known: dict[tuple[object, ...], int] = {}
    panels: list[list[LaunchPage | None]] = []
    calls: list[tuple[int, list[int]]] = []
    room, missing = MOST_PANELS, 0
    with_values = 0

    def described(launch: int) -> LaunchPage | None:
        """Return the description of a launch, with values as long as the report has room for them."""
        nonlocal with_values
        has_room = with_values < MOST_VALUES
        page = part(f"Launch {launch}", None, launch_page_of, trace, launch, values=has_room)
        with_values += bool(page and page.launch.values)
        return page

    dynamic = {row.graph for row in contents.overview.graphs if row.dynamic}
    for picture in timelines:
        for call, launches in launches_of_calls(picture):
            sites = tuple(site for _, site in launches)
            key = (call.graph, call.call if call.graph in dynamic else None, sites)
            if key not in known:
                known[key] = len(panels)
                panels.append([described(launch) for launch, _ in launches[:room]])
                room -= len(panels[-1])
            calls.append((known[key], [launch for launch, _ in launches]))
            missing += len(launches) - len(panels[known[key]])
    if missing:
        contents.left_out.append(f"arguments and code of {missing:,} launches")
    contents.shown["panels"], contents.shown["calls"] = panels, calls


class _Launch(NamedTuple):
    launch: int
    site: int
    thread: int
    start_ns: int
    launches: int


def launches_of_calls(timeline: Timeline) -> Iterable[tuple[CallRow, list[tuple[int, int]]]]:
    """Yield outermost calls with their launches (id, site), where the timeline has each launch separately."""
    columns = timeline.launches
    starts = (timeline.window_start_ns + start for start in columns.start_ns)
    rows = zip(columns.launch, columns.site, columns.thread, starts, columns.count, strict=True)
    launches = sorted(_Launch(*row) for row in rows)
    for call in timeline.calls:
        end = end_of(call, timeline)
        inside = [
            launch for launch in launches if launch.thread == call.thread and call.start_ns <= launch.start_ns <= end
        ]
        if call.depth == 0 and inside and all(launch.launches == 1 for launch in inside):
            yield call, [(launch.launch, launch.site) for launch in inside]


def end_of(call: CallRow, timeline: Timeline) -> int:
    """Return the end of a call; if it is unknown, the call ends before the next one of its thread begins."""
    if call.duration_ns is not None:
        return call.start_ns + call.duration_ns
    later = [
        other.start_ns
        for other in timeline.calls
        if other.thread == call.thread and other.depth == call.depth and other.start_ns > call.start_ns
    ]
    return min(later, default=timeline.window_end_ns + 1) - 1
