"""Builds the contexts of the pages of steps and launches, and registers their addresses."""

from __future__ import annotations

from dataclasses import dataclass, field

from stepscope.viewer.findings.crash.launch_deaths import LaunchDeath, launch_deaths
from stepscope.viewer.graphs.queries.kernel_code import CONTEXT_LINES
from stepscope.viewer.graphs.queries.launches import launch_detail
from stepscope.viewer.judged.queries.verdicts import verdict_on
from stepscope.viewer.judged.rows import JudgedLaunch
from stepscope.viewer.memory.queries.run import live_curve
from stepscope.viewer.memory.queries.steps import RunCurve, run_curve
from stepscope.viewer.memory.rows import LiveCurve
from stepscope.viewer.overview.queries.overview import first_page
from stepscope.viewer.overview.queries.runs import list_runs, list_steps, log_or_first
from stepscope.viewer.overview.rows import RunRow, StepRow
from stepscope.viewer.speed.queries.device_work import step_device_times
from stepscope.viewer.speed.queries.splits import step_split
from stepscope.viewer.speed.rows import DeviceTime, StepSplit
from stepscope.viewer.steps.marks import Mark, step_marks
from stepscope.viewer.steps.queries import steps as steps_queries
from stepscope.viewer.steps.queries.area import area_sums
from stepscope.viewer.steps.queries.device_work import launch_work
from stepscope.viewer.steps.queries.finding_launches import finding_places
from stepscope.viewer.steps.queries.profiled import profiled_operators
from stepscope.viewer.steps.queries.step_sources import StepSources, step_sources
from stepscope.viewer.steps.rows import AreaSums, DeviceWorkRow, LaunchDetail, ProfiledOperatorRow, Timeline
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.text.highlight import Line, highlight
from stepscope.viewer.values.queries.kernel_limits import LaunchLimit, launch_limit
from stepscope.viewer.web.addresses import NotThere, Page, Redirect, Request, Twin
from stepscope.viewer.web.parameters import END_NS, FIRST_STEP, LAST_STEP, LAUNCH, LOG, START_NS, STEP, WIDTH
from stepscope.viewer.web.parts import part

GAP = "…"
"""Line in place of the code that `kernel_code.cut` leaves out."""
FULL_WIDTH = 1600
"""Number of bins of the first picture of a step: about one per pixel of a wide screen."""


@dataclass(frozen=True)
class StepsPage:
    runs: list[RunRow]
    log: int | None
    """Number of the log in the address; None if the steps of all logs are listed."""
    steps: list[StepRow]
    curve: RunCurve | None
    """Live bytes over the steps; None if no storages were recorded."""
    sources: StepSources


@dataclass(frozen=True)
class LaunchPage:
    """The side panel of a launch."""

    launch: LaunchDetail
    code_lines: list[tuple[int | None, Line]]
    """Line number in the wrapper and coloured pieces of each line of the generated code; no number for a gap."""
    death: LaunchDeath | None = None
    """Role of the launch in the death of its process."""
    judged: JudgedLaunch | None = None
    """Verdict of the judge; None if the step of the launch was not judged."""
    limit: LaunchLimit | None = None
    """How near the launch came to the limit of its machine; None if that is unknown."""
    operators: list[ProfiledOperatorRow] = field(default_factory=list)
    """Operators that PyTorch's profiler saw during the launch; empty if its step was not profiled."""
    work: list[DeviceWorkRow] = field(default_factory=list)
    """Kernels, copies and fills of the launch that PyTorch's profiler saw; empty if its step was not profiled."""


@dataclass(frozen=True)
class StepPage:
    row: StepRow
    steps: list[StepRow]
    """All steps of the same log."""
    timeline: Timeline
    launch: LaunchPage | None
    """Contents of the panel; None if it is closed."""
    live: LiveCurve | None
    """Live bytes in the step; None if no storages were recorded."""
    marks: list[Mark]
    """Findings of this step, the worst first."""
    split: StepSplit | None
    """Where its time goes; None if it has no calls whose time is known."""
    devices: list[DeviceTime]
    """Time of each device that worked for it; empty if PyTorch's profiler did not see the step."""


def steps_page(trace: Trace, request: Request) -> StepsPage:
    log = request.optional_id("log")
    curve = part("The memory of the run", None, _run_curve, trace, request)
    steps = list_steps(trace, log)
    return StepsPage(list_runs(trace), log, steps, curve, step_sources(steps))


def _run_curve(trace: Trace, request: Request) -> RunCurve | None:
    first, last = request.optional_id("first_step"), request.optional_id("last_step")
    return run_curve(trace, log_or_first(trace, request.optional_id("log")), first, last, None)


def step_page(trace: Trace, request: Request) -> StepPage:
    timeline = timeline_page(trace, request)
    steps = list_steps(trace, timeline.log)
    row = next(row for row in steps if row.step == timeline.step)
    launch = request.number("launch")
    shown = None if launch is None else part(f"Launch {launch}", None, launch_page_of, trace, launch)
    if shown is not None and (shown.launch.log, shown.launch.step) != (row.log, row.step):
        raise NotThere(
            f"Launch {launch} is not in step {row.step} but in step {shown.launch.step} of log {shown.launch.log}."
        )
    live = part("The memory of the step", None, live_page, trace, timeline)
    marks = part("The findings of the step", [], _marks, trace, row)
    split = part("Where the time of the step goes", None, step_split, trace, row.log, row.step)
    devices = part("The devices", [], step_device_times, trace, row.log, row.step)
    return StepPage(row, steps, timeline, shown, live, marks, split, devices)


def _marks(trace: Trace, row: StepRow) -> list[Mark]:
    findings = first_page(trace).findings
    return step_marks(findings, finding_places(trace, findings), row.log, row.step)


def live_page(trace: Trace, timeline: Timeline, width: int = FULL_WIDTH) -> LiveCurve | None:
    """Return the live bytes in the window of a timeline."""
    return live_curve(trace, timeline.log, timeline.window_start_ns, timeline.window_end_ns, width)


def timeline_page(trace: Trace, request: Request) -> Timeline:
    log, step = log_or_first(trace, request.optional_id("log")), request.id("step")
    width = max(1, min(request.number("width") or FULL_WIDTH, 1_000_000))
    start, end = request.number("start_ns"), request.number("end_ns")
    found = steps_queries.timeline(trace, log, step, start_ns=start, end_ns=end, width=width)
    if found is None:
        raise NotThere(f"Log {log} of this trace contains no step {step}.")
    return found


def area_page(trace: Trace, request: Request) -> AreaSums:
    log, step = log_or_first(trace, request.optional_id("log")), request.id("step")
    found = area_sums(trace, log, step, request.number("start_ns"), request.number("end_ns"))
    if found is None:
        raise NotThere(f"Log {log} of this trace contains no step {step}.")
    return found


def launch_page(trace: Trace, request: Request) -> LaunchPage:
    return launch_page_of(trace, request.id("launch"))


def launch_page_of(trace: Trace, launch: int, *, values: bool = True) -> LaunchPage:
    detail = launch_detail(trace, launch, values=values)
    if detail is None:
        raise NotThere(f"This trace contains no launch {launch}.")
    judged = part("The verdict of the judge", None, verdict_on, trace, detail.log, detail.step, launch)
    deaths = part("How processes died", {}, launch_deaths, trace)
    limit = part("The limit", None, launch_limit, trace, detail)
    operators = part("The operators", [], profiled_operators, trace, detail)
    work = part("The work on devices", [], launch_work, trace, detail)
    code = part("The code", [], code_lines, detail)
    return LaunchPage(detail, code, deaths.get(launch), judged, limit, operators, work)


def code_lines(detail: LaunchDetail) -> list[tuple[int | None, Line]]:
    """Return a kernel's definition, a gap, and the lines around the launch, numbered as in the wrapper."""
    if detail.code is None:
        return []
    definition, gap, around = detail.code.partition(f"\n{GAP}\n")
    lines = list(enumerate(highlight(definition, "python"), detail.code_first_line or 1))
    if not gap:
        return [*lines]
    first = max(1, detail.site.line - CONTEXT_LINES)
    return [*lines, (None, [("", GAP)]), *enumerate(highlight(around, "python"), first)]


def launch_address(trace: Trace, request: Request) -> str:
    """Return the address of a launch in the timeline of its step."""
    launch = launch_page(trace, request).launch
    return f"/steps/{launch.step}?log={launch.log}&launch={launch.launch}"


ROUTES = (
    Page("/steps", "steps/list.html", "Steps", StepsPage, steps_page, (LOG, FIRST_STEP, LAST_STEP)),
    Page("/steps/{step}", "steps/page.html", "Steps", StepPage, step_page, (STEP, LOG, LAUNCH)),
    Twin("/steps/{step}/timeline.json", Timeline, timeline_page, (STEP, LOG, START_NS, END_NS, WIDTH)),
    Twin("/steps/{step}/area.json", AreaSums, area_page, (STEP, LOG, START_NS, END_NS)),
    Twin("/launches/{launch}.json", LaunchPage, launch_page, (LAUNCH,)),
    Redirect("/launches/{launch}", launch_address),
)
