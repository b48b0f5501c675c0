"""Jinja2 environment: filters for numbers, source text and JSON. Everything is escaped unless built here."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import TYPE_CHECKING, Any

import orjson
from markupsafe import Markup, escape

from stepscope.viewer.compiles import summary_rendering
from stepscope.viewer.ingest.damage import REASONS
from stepscope.viewer.ingest.sources import cache_dir
from stepscope.viewer.memory import rendering as memory_rendering
from stepscope.viewer.overview.rows import SIDES
from stepscope.viewer.text import formats
from stepscope.viewer.text.formats import format_bytes, format_count, format_ns
from stepscope.viewer.text.highlight import Language, highlight
from stepscope.viewer.web import assets
from stepscope.viewer.web.addresses import slug

if TYPE_CHECKING:
    from jinja2 import Environment

    from stepscope.viewer.compiles.rows import CompileRow
    from stepscope.viewer.graphs.rows import SiteRow, SourceLine
    from stepscope.viewer.overview.rows import Finding, RunRow, StepRow
    from stepscope.viewer.steps.rows import Span, Timeline
    from stepscope.viewer.values.rows import BufferDetail, Spread
    from stepscope.viewer.web.follow import Reading

SEVERITY_SIGNS = {"critical": "✖", "warning": "▲", "info": "●"}
HEALTH_SIGNS = {
    "nan": ("✖", "NaN"),
    "positive_infinity": ("▲", "+inf"),
    "negative_infinity": ("▼", "−inf"),
    "extreme": ("◆", "extreme"),
    "zero": ("0", "all zero"),
    "finite": ("", "finite"),
    "not_recorded": ("", "not recorded"),
}
"""Class -> its sign and its name; static/js/core/health.js says the same."""
STATISTIC_NAMES = {
    "nan": "NaN",
    "positive_infinity": "+inf",
    "negative_infinity": "−inf",
    "l2": "L2",
    "near_overflow": "near overflow",
}
COUNTED = {"nan", "positive_infinity", "negative_infinity", "zero", "near_overflow", "subnormal"}
STATUS_SIGNS = {
    "ok": "●",
    "graph break": "◐",
    "recompiled": "↻",
    "failed": "✖",
    "skipped": "○",
    "empty": "○",
    "fallback": "▽",
    "unfinished": "◌",
}


def to_json(value: Any, **_: object) -> str:
    return orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS).decode()


def bytes_html(value: int | None, reason: str = "not recorded") -> Markup:
    if value is None:
        return unknown_html(reason)
    return Markup('<span title="{} bytes">{}</span>').format(format_count(value), format_bytes(value))


def ns_html(value: int | None, reason: str = "not recorded") -> Markup:
    if value is None:
        return unknown_html(reason)
    return Markup('<span title="{} ns">{}</span>').format(format_count(value), format_ns(value))


def count_html(value: int | None, reason: str = "not recorded") -> Markup:
    return unknown_html(reason) if value is None else Markup(escape(format_count(value)))


def unknown_html(reason: str) -> Markup:
    return Markup('<span class="unknown" title="{}" aria-label="unknown: {}">–</span>').format(reason, reason)


def known_html(value: object, reason: str = "not recorded") -> Markup:
    return unknown_html(reason) if value is None or value == "" else escape(value)


def value_html(value: float | None, reason: str = "not recorded") -> Markup:
    """An element of a tensor, exactly on hover."""
    if value is None:
        return unknown_html(reason)
    return Markup('<span title="{}">{}</span>').format(repr(value), formats.format_value(value))


def spread_text(spread: Spread) -> str:
    """``0.1 … 65,504``, or the one value that it always had."""
    low, high = (
        formats.format_value(end) if isinstance(end, int | float) else formats.shape_text(end)
        for end in (spread.low, spread.high)
    )
    return low if low == high else f"{low} … {high}"


def curve_query(row: Any) -> str:
    """What stands in the address of a curve, in the order in which static/js/values/lines.js writes it."""
    return query_text({name: getattr(row, name) for name in ("site", "argument", "item", "part", "moment")})


def metric_text(value: object) -> str:
    return value if isinstance(value, str) else to_json(value)


def flow_text(site: SiteRow) -> str:
    """``buf0, primals_3 → buf1``: what goes in and what comes out."""
    sides = {"in": ("in", "inout"), "out": ("out", "inout")}
    names = {
        side: [row.buffer or row.name for row in site.arguments if row.role in roles] for side, roles in sides.items()
    }
    return " → ".join(", ".join(dict.fromkeys(side)) or "∅" for side in names.values())


def plotted(detail: BufferDetail) -> BufferDetail:
    """What the plot of a buffer is drawn from."""
    return replace(detail, sites=[], memory=[])


MOST_SENTENCES = 2
"""Shown of each side at once."""
LONG_EVIDENCE = 96
"""Characters from which on a fact of a finding is shown only when asked for."""
FOLDED = {"rank_divergence"}
"""Kinds of findings whose title says what their facts are made of."""


@dataclass(frozen=True)
class EvidenceParts:
    """What a finding's card shows of its evidence at once, and what behind a click."""

    sides: dict[str, list[str]]
    """Sentences about what went in and what came out, and what a tool found there."""
    shown: dict[str, Any]
    folded: dict[str, Any]
    tables: dict[str, list[dict[str, Any]]]


def evidence_parts(finding: Finding) -> EvidenceParts:
    known = {name: value for name, value in finding.evidence.items() if value is not None and value != []}
    sides = {name: known.pop(name) for name in SIDES if known.get(name)}
    known.pop("inside", None)
    parts = EvidenceParts(
        {name: [text] if isinstance(text, str) else [str(item) for item in text] for name, text in sides.items()},
        {}, {}, {},
    )  # fmt: skip
    for name, texts in parts.sides.items():
        if len(texts) > MOST_SENTENCES:
            parts.folded[name] = texts
    for name, value in known.items():
        if is_rows(value):
            parts.tables[name] = value
        elif sides or finding.kind in FOLDED or len(formats.evidence_text(value, name)) > LONG_EVIDENCE:
            parts.folded[name] = value
        else:
            parts.shown[name] = value
    return parts


def is_rows(value: object) -> bool:
    """Evidence that is a table."""
    return isinstance(value, list) and bool(value) and all(isinstance(item, dict) for item in value)


def touches_text(site: SiteRow, buffer: str) -> str:
    """Whether a launch site reads or writes a buffer; the names of a reused storage differ from launch to launch."""
    roles = {row.role for row in site.arguments if buffer in (row.buffer, row.storage)}
    reads, writes = roles & {"in", "inout"}, roles & {"out", "inout"}
    return " and ".join(word for word, does in (("reads", reads), ("writes", writes)) if does) or "uses"


def compile_reason(row: CompileRow) -> str:
    return row.failure or row.graph_break_reason or row.recompile_reason or ""


def rank_of(runs: list[RunRow], log: int) -> str:
    rank = next((run.rank for run in runs if run.log == log), None)
    return f"log {log}" if rank is None else str(rank)


def run_name(runs: list[RunRow], log: int) -> str:
    """``rank 3``; with the log where another has that rank too, only the log where none is said."""
    rank = next((run.rank for run in runs if run.log == log), None)
    if rank is None:
        return f"log {log}"
    return f"rank {rank}" if sum(run.rank == rank for run in runs) == 1 else f"rank {rank}, log {log}"


def position(rows: list[StepRow], row: StepRow) -> int:
    return next(place for place, other in enumerate(rows) if other.step == row.step)


def query_text(values: dict[str, object]) -> str:
    from urllib.parse import urlencode

    return urlencode({name: value for name, value in values.items() if value is not None and value != ""})


def pretty(value: object) -> str:
    return orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS).decode()


AXIS_PX, SPAN_PX, CALL_PX, LAUNCH_PX, HEALTH_PX, GAP_PX, MINIMAP_PX, MEMORY_PX = 22, 16, 20, 34, 14, 6, 30, 64


def timeline_height(timeline: Timeline, has_memory: bool = False) -> int:
    """The same sum as `layout` in static/js/steps/timeline_model.js: the page keeps the room before the script runs."""
    height = spans_height(timeline.spans)
    for thread in timeline.threads:
        depths = [call.depth for call in timeline.calls if call.thread == thread]
        height += GAP_PX + LAUNCH_PX + (CALL_PX * (1 + max(depths)) if depths else 0)
        height += HEALTH_PX if timeline.launches.health else 0
    return height + (MEMORY_PX + GAP_PX if has_memory else 0)


def spans_height(spans: list[Span]) -> int:
    depths = [span.depth for span in spans]
    rows = 1 + max(depths) - min(depths) if depths else 0
    return AXIS_PX + MINIMAP_PX + GAP_PX + (GAP_PX + SPAN_PX * rows if rows else 0)


def code_html(text: str, language: Language, id_prefix: str = "L", first: int = 1) -> Markup:
    """Numbered lines, each with an anchor. Built by hand: a template loop over the pieces takes too long."""
    prefix = escape(id_prefix)
    out = []
    for number, line in enumerate(highlight(text, language), first):
        pieces = [f'<i class="{name}">{escape(value)}</i>' if name else str(escape(value)) for name, value in line]
        out.append(
            f'<span class="line" id="{prefix}{number}"><a class="number" href="#{prefix}{number}">{number}</a>'
            f"<code>{''.join(pieces)}\n</code></span>"
        )
    return Markup('<pre class="code" tabindex="0">{}</pre>').format(Markup("".join(out)))


@dataclass(frozen=True)
class Bar:
    """One bar of the steps strip: one step, or the slowest of several."""

    step: StepRow
    x: float
    width: float
    height: float
    capped: bool
    others: int
    label: str


@dataclass(frozen=True)
class Strip:
    bars: list[Bar]
    width: float
    median_ns: int
    longest: StepRow


STRIP_HEIGHT = 40


def steps_strip(steps: list[StepRow], width: int = 960, most: int = 320) -> Strip | None:
    """Bars of step durations, capped at four medians so that a slow one hides nothing."""
    durations = sorted(step.duration_ns for step in steps if step.duration_ns is not None)
    if not durations:
        return None
    median = round(statistics.median(durations))
    cap = max(min(4 * median, durations[-1]), 1)
    group = -(-len(steps) // most)
    groups = [steps[start : start + group] for start in range(0, len(steps), group)]
    pitch = min(width / len(groups), 24.0)
    every = max(1, round(24 / pitch))
    bars = []
    for index, members in enumerate(groups):
        slowest = max(members, key=lambda step: step.duration_ns or 0)
        duration = slowest.duration_ns or 0
        size = round(max(2.0, STRIP_HEIGHT * min(duration, cap) / cap), 1)
        label = str(slowest.step) if group == 1 and index % every == 0 else ""
        x = round(index * pitch, 2)
        bars.append(Bar(slowest, x, max(1.0, round(pitch - 2, 2)), size, duration > cap, len(members) - 1, label))
    return Strip(bars, round(len(groups) * pitch, 1), median, max(steps, key=lambda step: step.duration_ns or 0))


def distinct(stacks: list[list[SourceLine]]) -> list[SourceLine]:
    """The last line of every stack, each once."""
    return list(dict.fromkeys(stack[-1] for stack in stacks if stack))


@cache
def environment(root: str = "", redacted: bool = False) -> Environment:
    """`root` stands before every path: "" for served pages, "#" for the report, whose pages are fragments."""
    from jinja2 import Environment, FileSystemBytecodeCache, FileSystemLoader, StrictUndefined, pass_context

    env = Environment(
        loader=FileSystemLoader(assets.folder("templates")),
        autoescape=True,
        undefined=StrictUndefined,
        # Compiling templates is a fifth of a second of the first page.
        bytecode_cache=FileSystemBytecodeCache(str(cache_dir())),
        trim_blocks=True,
        lstrip_blocks=True,
    )

    @pass_context
    def address_of_asset(context: Any, name: str) -> str:
        """Asked of the context, so that it is no part of a template that was compiled when the file was another."""
        return assets.address(name)

    env.policies["json.dumps_function"] = to_json
    env.policies["json.dumps_kwargs"] = {}
    env.filters.update(
        ns=ns_html,
        bytes=bytes_html,
        count=count_html,
        known=known_html,
        value=value_html,
        value_text=formats.format_value,
        spread=spread_text,
        slug=slug,
        curve_query=curve_query,
        plotted=plotted,
        code=code_html,
        asset=address_of_asset,
        basename=formats.basename,
        plural=formats.plural,
        plural_of=lambda values, noun: formats.plural(len(values), noun),
        ns_text=format_ns,
        launch=formats.launch_text,
        long_time=formats.format_long,
        shape=formats.shape_text,
        evidence=formats.evidence_text,
        evidence_label=formats.evidence_label,
        evidence_parts=evidence_parts,
        metric=metric_text,
        compile_status=lambda row: row.shown_status,
        compile_reason=compile_reason,
        rank_of=rank_of,
        run_name=run_name,
        position=position,
        query=query_text,
        pretty=pretty,
        timeline_height=timeline_height,
        spans_height=spans_height,
        steps_strip=steps_strip,
        distinct=distinct,
        flow=flow_text,
        touches=touches_text,
        compile_slug=lambda compile_id: compile_id.replace("/", "_"),
    )
    env.filters.update(memory_rendering.FILTERS)
    env.filters.update(summary_rendering.FILTERS)
    env.globals.update(
        finding_pages=summary_rendering.FINDING_PAGES,
        cache_names=summary_rendering.CACHE_NAMES,
        cache_signs=summary_rendering.CACHE_SIGNS,
        alive_kinds=memory_rendering.KIND_NAMES,
        mismatch_names=memory_rendering.MISMATCH_NAMES,
        root=root,
        redacted=redacted,
        severity_signs=SEVERITY_SIGNS,
        most_sentences=MOST_SENTENCES,
        status_signs=STATUS_SIGNS,
        health_signs=HEALTH_SIGNS,
        statistic_names=STATISTIC_NAMES,
        counted=COUNTED,
        damage_reasons=REASONS,
    )
    return env


def context_of(page: Any) -> dict[str, Any]:
    """The fields of a page by name: what its template may use."""
    return {field.name: getattr(page, field.name) for field in fields(page)}


def page(reading: Reading, template: str, section: str, context: dict[str, Any], import_map: str) -> str:
    """A page as the server shows it, its frame around it."""
    return (
        environment()
        .get_template(template)
        .render(
            **context,
            context={name: value for name, value in context.items() if name != "not_shown"},
            frame=reading.frame,
            notices=reading.trace.notices,
            section=section,
            import_map=Markup(import_map),
        )
    )
