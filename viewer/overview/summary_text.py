"""Renders the summary as plain text of at most 100 columns, without control characters."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from stepscope.viewer.compiles.rows import CompileRow
from stepscope.viewer.graphs.rows import GraphRow
from stepscope.viewer.ingest.damage import REASONS
from stepscope.viewer.memory.queries.summary import MemoryFigures, NodePeak
from stepscope.viewer.overview.finding_groups import FindingGroup, finding_groups
from stepscope.viewer.overview.queries.recorder_cost import recorder_cost
from stepscope.viewer.overview.rows import (
    SEVERITY_SIGNS,
    CrashRunRow,
    Finding,
    NotRecorded,
    Overview,
    Problem,
    RunRow,
    StepRow,
)
from stepscope.viewer.speed.queries.verdict import share_text
from stepscope.viewer.steps.queries.step_sources import step_sources
from stepscope.viewer.text.alike import often, pattern_of
from stepscope.viewer.text.clean import clean
from stepscope.viewer.text.formats import format_bytes, format_count, format_ns, launch_text, numbers_text, plural
from stepscope.viewer.text.table import aligned
from stepscope.viewer.text.wrap import WIDTH, wrapped

UNKNOWN = "–"
WHOLE_COMPILE = (
    "The compile time of a step includes the time to load the compiler; the time of a compile starts with its frame."
)
_ALIKE = 1.02
_MOST_ROWS = 20
_MOST_FINDINGS = 40
_MOST_LINES = 2
"""Maximum number of lines for the source line of a finding."""


@dataclass(frozen=True)
class MemoryText:
    """The memory figures in the summary, with peaks by graph."""

    figures: MemoryFigures
    estimated: Mapping[int, NodePeak]
    measured: Mapping[int, NodePeak]


def render(
    facts: Overview, compiles: Sequence[CompileRow], problems: Sequence[Problem], memory: MemoryText | None = None
) -> str:
    """Return the text for a terminal, in which texts from the log have no control characters."""
    parts = [
        _verdict(facts),
        _crash_runs(facts.crash_runs),
        _runs(facts),
        _steps(facts, facts.steps),
        _memory(facts, memory.figures) if memory else [],
        _graphs(facts, facts.graphs, memory),
        _compiles(facts, compiles),
        _problems(facts, problems),
        _not_recorded(facts.not_recorded),
        _cost(facts),
    ]
    return "\n\n".join("\n".join(part) for part in parts if part)


def _verdict(facts: Overview) -> list[str]:
    if not facts.findings:
        return [f"No findings in {_seen(facts)}.", *_notes(facts)]
    lines, groups = [], finding_groups(facts.findings)
    for group in groups[:_MOST_FINDINGS]:
        lines += [*_finding(facts, group.first), *_others(facts, group)]
    if len(groups) > _MOST_FINDINGS:
        lines.append(f"  … and {sum(1 + len(group.others) for group in groups[_MOST_FINDINGS:]):,} more findings")
    notes = _notes(facts)
    return [*lines, "", *notes] if notes else lines


def _notes(facts: Overview) -> list[str]:
    return [line for note in facts.notes for line in wrapped(note)]


def render_findings(facts: Overview) -> str:
    """Return the findings, as `render` shows them, without the facts."""
    return "\n".join(_verdict(facts))


def _seen(facts: Overview) -> str:
    counts = facts.counts
    if counts.launches is None:
        return f"{plural(facts.compile_count, 'compile')} ({counts.records:,} records)"
    if not counts.launches and not counts.steps and facts.compile_count:
        return f"{plural(facts.compile_count, 'compile')}; no call of compiled code was recorded"
    seen = f"{plural(counts.steps or 0, 'step')}, {plural(counts.launches, 'launch')}"
    if counts.subgraph_calls:
        seen += f" of kernels, {plural(counts.subgraph_calls, 'call')} of subgraphs"
    return f"{seen}, {plural(counts.value_rows, 'value') if counts.value_rows is not None else 'no values'} read"


def _finding(facts: Overview, finding: Finding) -> list[str]:
    sign = SEVERITY_SIGNS[finding.severity]
    is_of_all = finding.evidence.get("logs") == len(facts.runs)
    where = f"{_of(facts, finding.log)}: " if len(facts.runs) > 1 and finding.log is not None and not is_of_all else ""
    lines = wrapped(f"{sign} {where}{finding.title}", following="  ", most=3)
    source = finding.source
    number = rf"\blaunch {finding.launch}\b"
    if finding.launch is not None and not any(re.search(number, said) for said in (finding.title, *finding.proof)):
        lines += wrapped(launch_text(finding.launch, finding.step), "  ")
    if source is not None:
        code = f"  {source.code.strip()}" if source.code else ""
        lines += wrapped(f"{source.file}:{source.line}{code}", "  ", WIDTH, "      ")[:_MOST_LINES]
        if source.as_compiled is not None:
            lines += wrapped(source.as_compiled, "  ")
    return lines + [part for line in finding.proof for part in wrapped(line, "  ", WIDTH, "      ")]


def _others(facts: Overview, group: FindingGroup) -> list[str]:
    """Return the sentence that names the logs that have a finding like the first one."""
    if not group.others:
        return []
    of_runs = {run.log: run.crash_run for run in facts.runs if run.crash_run is not None}
    logs = sorted(one.log for one in group.others if one.log is not None)
    if runs := sorted(of_runs[log] for log in logs if log in of_runs):
        where = numbers_text("run", runs)
    elif ranks := _distinct_ranks(facts):
        where = numbers_text("rank", sorted(ranks[log] for log in logs))
    else:
        where = numbers_text("log", logs)
    return wrapped(f"It is found in {where}, too.", "  ")


def _log_name(facts: Overview, log: int) -> str:
    """Return ``log 3``, or ``run 2`` for a run of --crash."""
    run = next((run.crash_run for run in facts.runs if run.log == log), None)
    return f"log {log}" if run is None else f"run {run}"


def _of(facts: Overview, log: int) -> str:
    """Return ``rank 1`` if each log is of another rank, else the name of the log."""
    ranks = _distinct_ranks(facts)
    return f"rank {ranks[log]}" if ranks else _log_name(facts, log)


def _distinct_ranks(facts: Overview) -> dict[int, int]:
    """Return the rank of each log, or nothing unless each log is of another rank."""
    ranks = {run.log: run.rank for run in facts.runs if run.rank is not None}
    return ranks if len({*ranks.values()}) == len(facts.runs) else {}


def _crash_runs(runs: Sequence[CrashRunRow]) -> list[str]:
    if not runs:
        return []
    header = ("run", "purpose", "same symptom", "ended", "time", "launch")
    survived = {True: "yes", False: "no", None: UNKNOWN}
    rows = [
        (
            str(run.run), run.purpose, survived[run.survived], _shortened(run.ended, 40), format_ns(run.duration_ns),
            UNKNOWN if run.kernel is None else f"{_launch(run)}, {run.kernel}",
        )
        for run in runs
    ]  # fmt: skip
    asked = [f"  run {run.run}: {', '.join(run.asked)}" for run in runs if run.asked]
    found = [
        line
        for run in runs
        for error in run.tool_errors
        for line in wrapped(f"run {run.run} found: {error.title}: {' '.join(error.details)}", "  ", following="    ")
    ]
    return [
        f"Runs of --crash  {len(runs)}", *_table(header, rows, left=6), *(_cut(clean(line)) for line in asked), *found
    ]  # fmt: skip


def _launch(run: CrashRunRow) -> str:
    """Return the position of the launch in its step, because its number differs from run to run."""
    return launch_text(None, run.step, run.launch_in_step)


def _runs(facts: Overview) -> list[str]:
    if len(facts.runs) == 1:
        return wrapped(_run(facts.runs[0]), following="     ")
    lines = [_cut(f"Log {run.log}{_of_crash_run(run)}  {_run(run)}") for run in facts.runs[:_MOST_ROWS]]
    if len(facts.runs) > _MOST_ROWS:
        lines.append(f"… and {len(facts.runs) - _MOST_ROWS:,} more logs")
    return lines


def _of_crash_run(run: RunRow) -> str:
    return f" (run {run.crash_run})" if run.crash_run is not None else ""


def _run(run: RunRow) -> str:
    rank = f"rank {run.rank}" + (f" of {run.world_size}" if run.world_size else "") if run.rank is not None else None
    end = {True: None, False: "no end record", None: None}[run.complete]
    parts = [
        "Run", run.command or PurePath(run.path).name, rank, f"torch {run.torch}" if run.torch else None,
        ", ".join(run.devices) or None, run.remark or f"level {run.level}", end,
    ]  # fmt: skip
    return "  ".join(part for part in parts if part)


def _steps(facts: Overview, steps: Sequence[StepRow]) -> list[str]:
    if not steps:
        return []
    header = ("step", "kind", "by", "time", "compile", "launches", "calls")
    rows = [
        (
            str(s.step), s.kind or UNKNOWN, s.by or UNKNOWN, format_ns(s.duration_ns),
            format_ns(s.compile_ns) if s.compile_ns else UNKNOWN, f"{s.launches:,}", f"{s.calls:,}",
        )
        for s in steps
    ]  # fmt: skip
    said, calls = step_sources(steps), facts.counts.subgraph_calls
    apart = f"{plural(calls, 'call')} of subgraphs are not counted as launches of kernels." if calls else None
    told = (said.found_by, said.doubt, said.data_workers, _compiled(facts, steps), apart)
    notes = [note for note in told if note is not None] + _time(facts)
    lines = [line for note in notes for line in wrapped(note, "  ", WIDTH - 2)]
    return [f"Steps  {format_count(facts.counts.steps)}", *lines, *_by_log(facts, steps, header, rows, left=3)]


def _time(facts: Overview) -> list[str]:
    """Return where the time goes, in one sentence for each log."""
    several = len(facts.runs) > 1
    return [
        f"{_log_name(facts, one.log)}: {one.verdict}" if several else one.verdict for one in facts.time if one.verdict
    ][:_MOST_ROWS]


def _compiled(facts: Overview, steps: Sequence[StepRow]) -> str | None:
    """Return why steps compile longer than all compiles together, or None if they do not."""
    of_steps, of_compiles = sum(step.compile_ns or 0 for step in steps), facts.compile_duration_ns or 0
    return WHOLE_COMPILE if of_steps > of_compiles * _ALIKE else None


_OTHER_MEMORY = (
    "What compiled code does not use, such as the state of an optimizer whose step is not compiled, is not in it."
)


def _memory(facts: Overview, figures: MemoryFigures) -> list[str]:
    if figures.peak_bytes is None:
        return []
    graph = next((g for g in facts.graphs if g.graph == figures.peak_graph), None)
    step = f" in step {figures.peak_step}" if figures.peak_step is not None else ""
    where = f", graph {graph.graph} ({graph.aot_id or graph.compile_id or UNKNOWN})" if graph else ""
    grows = (
        f"; grows by {format_bytes(figures.growth_bytes_per_step)} per step" if figures.growth_bytes_per_step else ""
    )
    parts = [f"{one.kind} {share_text(one.storage_bytes, figures.peak_bytes)}" for one in figures.peak_parts or ()]
    line = _cut(f"Memory  at most {format_bytes(figures.peak_bytes)}{step}{where}{grows}")
    of_it = f"Of it: {', '.join(parts)}. " if parts else ""
    return [line, *wrapped(f"{of_it}{_OTHER_MEMORY}", "  ")]


def _graphs(facts: Overview, graphs: Sequence[GraphRow], memory: MemoryText | None) -> list[str]:
    if not graphs:
        return []
    header: tuple[str, ...] = ("graph", "compile", "AOT id", "sites", "calls", "launches", "time")
    rows: list[tuple[str, ...]] = [
        (
            str(g.graph), g.compile_id or UNKNOWN, g.aot_id or UNKNOWN, format_count(g.launch_sites),
            format_count(g.calls), format_count(g.launches), format_ns(g.duration_ns),
        )
        for g in graphs
    ]  # fmt: skip
    if memory and (memory.estimated or memory.measured):
        header += ("estimated", "measured peak")
        peaks = [(_peak(memory.estimated.get(g.graph)), _peak(memory.measured.get(g.graph))) for g in graphs]
        rows = [(*row, *peak) for row, peak in zip(rows, peaks, strict=True)]
    notes = [_PLACES] if any("@" in cell for row in rows for cell in row[-2:]) else []
    return [f"Graphs  {len(graphs):,}", *notes, *_by_log(facts, graphs, header, rows, left=3)]


_PLACES = "  The number behind @ is the scheduler node of the peak, counted from 0."


def _peak(peak: NodePeak | None) -> str:
    if peak is None:
        return UNKNOWN
    return (
        f"{format_bytes(peak.peak_bytes)} @{peak.snode_index}"
        if peak.snode_index is not None
        else format_bytes(peak.peak_bytes)
    )


def _compiles(facts: Overview, compiles: Sequence[CompileRow]) -> list[str]:
    if not compiles:
        return []
    cache = ", ".join(plural(count, state) for state, count in facts.cache_counts.items())
    title = [
        f"Compiles  {len(compiles):,}", format_ns(facts.compile_duration_ns), f"by cache: {cache}" if cache else "",
        plural(facts.graph_breaks, "graph break") if facts.graph_breaks else "",
    ]  # fmt: skip
    header = ("compile", "frame", "status", "cache", "attempts", "time")
    rows = [
        (
            c.compile_id, _shortened(clean(c.frame or UNKNOWN), 50), c.shown_status, c.cache or UNKNOWN,
            str(c.attempts), format_ns(c.duration_ns),
        )
        for c in compiles
    ]  # fmt: skip
    return ["  ".join(part for part in title if part), *_by_log(facts, compiles, header, rows, left=4)]


def _problems(facts: Overview, problems: Sequence[Problem]) -> list[str]:
    if not facts.skipped:
        return []
    lines = ["Damage", *(_cut(f"  {count:,} {reason}: {REASONS[reason]}") for reason, count in facts.skipped.items())]
    lines += [
        _cut(f"  {p.log}:{p.line if p.line is not None else UNKNOWN}  {p.reason}  {p.text}")
        for p in problems[:_MOST_ROWS]
    ]
    return lines + _more(facts.problems - min(len(problems), _MOST_ROWS))


def _not_recorded(rows: Sequence[NotRecorded]) -> list[str]:
    if not rows:
        return []
    alike: dict[str, list[NotRecorded]] = {}
    for row in rows:
        alike.setdefault(pattern_of(f"{row.what}: {row.why}"), []).append(row)
    lines = [line for group in [*alike.values()][:_MOST_ROWS] for line in _gaps(group)]
    return ["Not recorded", *lines, *_more(len(alike) - _MOST_ROWS)]


def _gaps(alike: Sequence[NotRecorded]) -> list[str]:
    """Return the lines of a text for gaps whose texts differ only in names and numbers."""
    first, times = alike[0], often(sum(row.count for row in alike), len(alike))
    return wrapped(f"{first.what}: {first.why}" + (f" ({times})" if times else ""), "  ", following="    ")


def _cost(facts: Overview) -> list[str]:
    cost = facts.overhead
    known = recorder_cost(facts)
    share = f" ({known.text})" if known else ""
    parts = [f"{format_ns(cost.hook_ns)}{share}"] if cost.hook_ns is not None else []
    if cost.log_bytes is not None:
        parts.append(f"{format_bytes(sum(run.size_bytes for run in facts.runs))} of log")
    if cost.bytes_per_launch is not None:
        parts.append(f"{cost.bytes_per_launch:.0f} B a launch")
    if cost.stats_ns is not None:
        parts.append(f"{plural(facts.counts.value_rows or 0, 'value')} read in {format_ns(cost.stats_ns)}")
    if cost.failures:
        parts.append(plural(cost.failures, "failure"))
    return ["Recorder  " + ", ".join(parts)] if parts else []


def _by_log(
    facts: Overview,
    of: Sequence[StepRow | GraphRow | CompileRow],
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    left: int,
) -> list[str]:
    """Return the table, with a column for the log if there are several logs."""
    if len(facts.runs) < 2:
        return _table(header, rows, left)
    return _table(("log", *header), [(str(row.log), *cells) for row, cells in zip(of, rows, strict=True)], left + 1)


def _table(header: Sequence[str], rows: Sequence[Sequence[str]], left: int) -> list[str]:
    """Return a table of the first rows, with the first `left` columns aligned to the left."""
    shown = [header, *([clean(cell) for cell in row] for row in rows[:_MOST_ROWS])]
    return [_cut(f"  {line}") for line in aligned(shown, left)] + _more(len(rows) - _MOST_ROWS)


def _more(count: int) -> list[str]:
    return [f"  … and {count:,} more"] if count > 0 else []


def _cut(line: str) -> str:
    return _shortened(clean(line), WIDTH)


def _shortened(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"
