"""Collects the facts of one compile while its log is read, and adds its rows."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from stepscope.viewer.ingest.bounds import whole_number
from stepscope.viewer.ingest.lenient_json import dumps, text
from stepscope.viewer.ingest.rows import IndexRows
from stepscope.viewer.ingest.torch_trace.torch_text import (
    Cause,
    UserFrame,
    failure,
    guard_place,
    is_of_torch,
    is_wrapper,
)

_LIMIT = re.compile(r"recompile[_ ]limit|cache_size_limit|cache_limit")
_LIMIT_KIND = re.compile(r"(?:Recompile|Cache)Limit(?:Hit|Exceeded)$")
_LIMIT_RAISES = "FailOn"
"""Prefix of exceptions that are raised at the limit with `fullgraph=True`."""
_RESUMED = re.compile(r"^torch_dynamo_resume_in_(.+)_at_\d+$")
_CACHE_ORDER = ("bypass", "miss", "hit")

_STATIC = '"automatic_dynamic_shapes": false'
"""What the settings of Dynamo contain for ``torch.compile(..., dynamic=False)``."""
_KEPT = frozenset(
    [
        "co_name",
        "co_filename",
        "co_firstlineno",
        "fail_type",
        "has_guarded_code",
        "config_suppress_errors",
        "start_time_us",
    ]
)
Stack = list[UserFrame]
RawFrame = tuple[object, int | None, str, str]
"""(file name or its id in the string table, line, function, code)."""
Frame = tuple[str, str, int | None]
"""(function, file, line) of a compiled function."""


@dataclass(slots=True)
class Compile:
    """A compile id of a log with all its attempts."""

    log: int
    compile_id: str
    first_time_ns: int | None
    first_record: int
    stack: list[RawFrame] = field(default_factory=list)
    """Frames, outermost first."""
    last_attempt: int = 0
    started: bool = False
    metrics: dict[str, Any] = field(default_factory=dict)
    """Metrics named in `_KEPT`."""
    is_static: bool = False
    """Whether PyTorch makes no size dynamic that has changed."""
    metrics_records: list[int] = field(default_factory=list)
    metrics_duration_ns: int | None = None
    span_start_ns: int | None = None
    span_duration_ns: int | None = None
    graph_cache: set[str] = field(default_factory=set)
    autograd_cache: set[str] = field(default_factory=set)
    events: list[tuple[str, int, Cause]] = field(default_factory=list)
    """(kind, record, cause) of each."""
    error: Cause | None = None
    error_record: int = -1
    restart_reasons: list[str] = field(default_factory=list)
    wrapped: str | None = None
    """Class of the object that the compiled function has in its variable `fn`."""
    has_raised: bool = False
    raised: list[Cause] = field(default_factory=list)
    """Exceptions that the recorder saw in compiles without an id and that no metrics have repeated yet."""
    in_flight: str | None = None
    """Innermost span that is open at the end of the log."""

    def start(self, stack: list[RawFrame]) -> None:
        self.started = True
        self.stack = stack or self.stack

    def has_ended(self) -> bool:
        return bool(self.metrics_records) or self.span_duration_ns is not None

    def add_metrics(self, metrics: dict[str, Any], record: int) -> None:
        """Add the metrics of a forward compile, which name the frame, or of a backward compile."""
        self.metrics_records.append(record)
        if "fail_type" in metrics and (metrics.get("co_name") or metrics.get("fail_type") or not self.metrics):
            self.metrics = {name: value for name, value in metrics.items() if name in _KEPT}
            self.is_static = _STATIC in (text(metrics.get("dynamo_config")) or "")
        reasons = metrics.get("restart_reasons")
        self.restart_reasons += [r for r in reasons if isinstance(r, str)] if isinstance(reasons, list) else []
        duration_ns = duration_of(metrics)
        if duration_ns is not None:
            self.metrics_duration_ns = (self.metrics_duration_ns or 0) + duration_ns
        kind, reason = text(metrics.get("fail_type")), text(metrics.get("fail_reason")) or ""
        if kind:
            self.fail(kind, reason, metrics, record)

    def fail(self, kind: str, reason: str, metrics: dict[str, Any], record: int) -> None:
        file, line = (
            text(metrics.get("fail_user_frame_filename")),
            whole_number(metrics.get("fail_user_frame_lineno")),
        )
        frame = self.error.frame if self.error else None
        if frame is None and file and line is not None:
            frame = UserFrame(file, line, text(metrics.get("co_name")) or "", "")
        limit = bool(_LIMIT.search(reason) or _LIMIT_KIND.search(kind))
        cause = failure(kind, reason, frame)
        told = next((one for one in self.raised if one.text in cause.text or cause.text in one.text), None)
        if told is not None:
            self.raised.remove(told)
        else:
            self.events.append(("recompile_limit" if limit else "compile_failure", record, cause))

    def fail_without_id(self, kind: str, reason: str, record: int) -> None:
        """Add an exception that was raised in a compile without an id."""
        cause = failure(kind, reason, None)
        self.has_raised = True
        self.raised.append(cause)
        self.events.append(("compile_failure", record, cause))

    def frame(self) -> Frame | None:
        """Return the compiled function, or None if the metrics do not name it."""
        function, file = text(self.metrics.get("co_name")), text(self.metrics.get("co_filename"))
        return (function, file, whole_number(self.metrics.get("co_firstlineno"))) if function and file else None

    def reasons(self, kind: str) -> list[Cause]:
        return [cause for event, _, cause in self.events if event == kind]

    def skipped_at_a_break(self) -> bool:
        """Return whether Dynamo left the function to Python after a graph break that it could not resume. With
        `fullgraph` it raises instead and logs no graph break."""
        return self.metrics.get("fail_type") == "Unsupported" and bool(self.reasons("graph_break"))

    def is_unfinished(self) -> bool:
        return self.in_flight is not None and self.error is None and not self.metrics_records

    def status(self) -> str:
        if self.skipped_at_a_break():
            return "fallback"
        if self.reasons("recompile_limit"):
            raises = (text(self.metrics.get("fail_type")) or "").startswith(_LIMIT_RAISES)
            return "failed" if raises else "fallback"
        if self.is_unfinished():
            return "unfinished"
        kind = text(self.metrics.get("fail_type")) or ""
        if not kind and self.error is None and not self.has_raised:
            no_graph = self.metrics.get("has_guarded_code") is False
            return "skipped" if no_graph else "ok"
        if "Skip" in kind:
            return "skipped"
        return "fallback" if self.metrics.get("config_suppress_errors") is True else "failed"

    def cache(self) -> str | None:
        states = self.graph_cache or self.autograd_cache
        return next((state for state in _CACHE_ORDER if state in states), None)

    def start_unix_ns(self) -> int | None:
        stamps = [whole_number(self.metrics.get("start_time_us")), self.span_start_ns, self.first_time_ns]
        if stamps[0] is not None and stamps[0] < 2**53:
            return stamps[0] * 1000
        return stamps[1] if stamps[1] is not None else stamps[2]


def duration_of(metrics: dict[str, Any]) -> int | None:
    """Return the duration of a compile in ns, or None if it is unknown."""
    micros = whole_number(metrics.get("duration_us"))
    if micros is not None and 0 <= micros < 2**53:
        return micros * 1000
    seconds = metrics.get("entire_frame_compile_time_s")
    return int(seconds * 1e9) if isinstance(seconds, (int, float)) and 0 <= seconds < 2**32 else None


def add_compile(rows: IndexRows, compile: Compile, stack: Stack, frame: Frame | None, caller: UserFrame | None) -> None:
    """Add the rows of `compile`, whose function is `frame`, called by the line `caller` of the program."""
    if compile.error is not None and not compile.reasons("compile_failure"):
        compile.events.append(("compile_failure", compile.error_record, compile.error))
    if compile.is_unfinished():
        cause = Cause(f"the log ends within it, in {compile.in_flight}", "", None)
        compile.events.append(("compile_failure", compile.first_record, cause))
    if compile.skipped_at_a_break():
        compile.events = [event for event in compile.events if event[0] != "compile_failure"]
    function, file, line = frame or (None, None, None)
    recompiles, breaks = compile.reasons("recompile"), compile.reasons("graph_break")
    failures = compile.reasons("recompile_limit") + compile.reasons("compile_failure")
    duration_ns = compile.metrics_duration_ns
    rows.add(
        "compiles",
        compile=rows.new_id("compiles"),
        log=compile.log,
        compile_id=compile.compile_id,
        frame=frame_label(frame, compile.wrapped),
        file=file,
        line=line,
        function=function,
        status=compile.status(),
        attempts=compile.last_attempt + 1,
        start_unix_ns=compile.start_unix_ns(),
        duration_ns=compile.span_duration_ns if duration_ns is None else duration_ns,
        cache=compile.cache(),
        recompile_reason="\n".join(cause.cause for cause in recompiles) or None,
        graph_break_reason="\n".join(dict.fromkeys(cause.cause for cause in breaks)) or None,
        failure=failures[0].cause if failures else None,
        stack=dumps(stack),
        metrics=dumps(compile.metrics_records) if compile.metrics_records else None,
        is_static=compile.is_static,
    )
    for kind, record, cause in compile.events:
        place = cause.frame
        if kind == "recompile" and place is None and file is not None:
            place = guard_place(cause.text, file)
        place = _place(kind, place, file, caller)
        rows.add(
            "compile_events",
            log=compile.log,
            compile_id=compile.compile_id,
            kind=kind,
            record=record,
            cause=cause.cause,
            text=cause.text,
            file=place.file if place else None,
            line=place.line if place else None,
            function=place.function if place else None,
            code=place.code if place else None,
            resumed_line=_resumed_line(cause, frame) if kind == "graph_break" else None,
        )


def _resumed_line(cause: Cause, frame: Frame | None) -> int | None:
    """Return the line of a compiled function at which a graph break ends its graph, in it or in what it calls."""
    function, file, _ = frame or (None, None, None)
    origin = _RESUMED.sub(r"\1", function or "")
    return next((one.line for one in reversed(cause.stack) if (one.file, one.function) == (file, origin)), None)


def _place(kind: str, place: UserFrame | None, file: str | None, caller: UserFrame | None) -> UserFrame | None:
    """Return the line of the program for an event in torch's own code. A graph break in a compiled function of torch
    stays there, because Dynamo resumes there."""
    here = place.file if place else file
    if here is None or not is_of_torch(here) or (kind == "graph_break" and here == file):
        return place
    return caller or place


def frame_label(frame: Frame | None, wrapped: str | None = None) -> str | None:
    """Return ``forward (model.py:12)``, or ``Sequential (torch.nn.modules.container)`` for torch's wrapper of an object
    of the class `wrapped`."""
    if frame is None:
        return None
    function, file, line = frame
    if wrapped is not None and is_wrapper(file):
        module, _, name = wrapped.rpartition(".")
        return f"{name} ({module})" if module else name
    name = re.split(r"[/\\]", file)[-1]
    return f"{function} ({name}:{line})" if line is not None else f"{function} ({name})"
