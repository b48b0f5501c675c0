"""Reads PyTorch's own records into compiles with their stacks, caches, reasons and spans, and into graphs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from stepscope.viewer.ingest.bounds import whole_number
from stepscope.viewer.ingest.damage import Damage
from stepscope.viewer.ingest.lenient_json import loads, text
from stepscope.viewer.ingest.reader import LogRecord
from stepscope.viewer.ingest.rows import IndexRows
from stepscope.viewer.ingest.steps.compiles import Compiling
from stepscope.viewer.ingest.torch_trace import torch_text
from stepscope.viewer.ingest.torch_trace.compile_facts import CompilationRows, cache_of
from stepscope.viewer.ingest.torch_trace.compile_ids import LogCompileIds
from stepscope.viewer.ingest.torch_trace.compile_rows import Compile, Frame, RawFrame, Stack, add_compile
from stepscope.viewer.ingest.torch_trace.event_kinds import DESCRIBED
from stepscope.viewer.ingest.torch_trace.kinds import COMPILE_ERROR, NO_ID
from stepscope.viewer.ingest.torch_trace.spans import OUTER_SPANS, Spans, compile_id_of
from stepscope.viewer.ingest.torch_trace.torch_text import Cause, UserFrame, user_frame

CHROMIUM_EVENT = "chromium_event"
_LONGEST_STACK = 1000
_LONG_EVENT = 4096
_COMPONENTS = b'\n"components": ['
_LIST_END = re.compile(rb"\n\]")
"""Regular expression, because it is twice as fast as `bytes.find` among so many lines."""
LONGEST_NAME = 4096
"""Maximum number of characters of an entry in the string table."""
StringTable = dict[int, str]


@dataclass(frozen=True)
class OutputCode:
    """A generated wrapper in the log."""

    record: int
    wrapper_key: str | None
    aot_id: str | None
    compile_id: str | None
    cached: bool


class TorchEvents:
    """Reads torch's records of one log. `finish` needs the string tables of processes that it may be forked from."""

    def __init__(self, log: int, rows: IndexRows, damage: Damage) -> None:
        self.log, self.rows, self.damage = log, rows, damage
        self.strings: StringTable = {}
        self.compiles: dict[str, Compile] = {}
        self.ids = LogCompileIds()
        self._spans: dict[int | None, Spans] = {}
        """Spans by process."""
        self.facts = CompilationRows(log, rows)
        self.output_codes: list[OutputCode] = []
        self.callers: dict[str, UserFrame] = {}
        """Compile id -> the line of the program that called the compiled function; set by `finish`."""
        self.updates: set[str] = set()
        """Ids of the compiles of functions of `torch.optim`; set by `finish`."""
        self.torch_version: str | None = None
        self.logs_breaks = False
        """Whether PyTorch writes a record of each graph break; older versions only name reasons to restart."""
        self._events: Mapping[str, Callable[[LogRecord], None]] = {
            "str": self._string,
            "dynamo_start": self._dynamo_start,
            "compilation_metrics": self._metrics,
            "bwd_compilation_metrics": self._metrics,
            "aot_autograd_backward_compilation_metrics": self._metrics,
            "inductor_output_code": self._output_code,
            "dynamo_cpp_guards_str": self._guards,
        }
        self._artifacts: Mapping[str, Callable[[LogRecord], None]] = {
            "torch_version": self._torch_version,
            "recompile_reasons": self._recompile_reasons,
            "dynamo_graph_break_reason": self._graph_break,
            "dynamo_error": self._error,
            COMPILE_ERROR: self._error_without_id,
            **{f"fx_graph_cache_{state}": self._cache for state in ("hit", "miss", "bypass")},
            **{f"aotautograd_cache_{state}": self._cache for state in ("hit", "miss", "bypass")},
        }

    def note_attempt(self, record: LogRecord) -> None:
        """Note the stack and the number of the attempt that the record's header names.

        `torch.export` describes tensors under an id too (PyTorch 2.15), but compiles nothing.
        """
        if record.compile_id is not None and (record.event not in DESCRIBED or record.compile_id in self.compiles):
            compile = self._compile(record)
            if not compile.stack and not compile.started and "stack" in record.header.envelope:
                compile.stack = _raw_stack(record.header.envelope["stack"])
            if record.header.compile_id == NO_ID and record.pid in self._spans:
                self._spans[record.pid].note_compile(record.compile_id)
            attempt = record.header.attempt
            if attempt and attempt > compile.last_attempt:
                compile.last_attempt = attempt

    def readers_of(self, event: str, name: str | None) -> list[Callable[[LogRecord], None]]:
        """Return what reads records with this event and name; an invalid form is counted, never raised."""
        if event == CHROMIUM_EVENT:
            return [self.read_span]
        if event == "artifact":
            return [self._artifacts.get(name or "", self._other_artifact)]
        return [reader for reader in (self.facts.reader_of(event), self._events.get(event)) if reader is not None]

    def compiling(self) -> Iterator[Compiling]:
        """Yield the spans in which the process compiled, in unix ns."""
        for spans in self._spans.values():
            for span in spans.ended():
                yield Compiling(span.start_ns, span.start_ns + span.duration_ns, span.compile_id)

    def finish(self, inherited: Iterable[StringTable] = ()) -> None:
        """Add the rows of all compiles and spans."""
        tables = [self.strings, *self._fitting(inherited)]
        named = self._named_frames()
        in_flight = {key: name for spans in self._spans.values() for key, name in spans.in_flight().items()}
        for compile in self.compiles.values():
            stack = _resolve(compile, tables)
            if not compile.started:
                stack = torch_text.without_torch_at_the_end(stack)
            caller = torch_text.caller_of(stack)
            if caller is not None:
                self.callers[compile.compile_id] = caller
            if not self.logs_breaks:
                compile.events += [
                    ("graph_break", compile.metrics_records[-1], torch_text.graph_break(reason))
                    for reason in compile.restart_reasons
                    if torch_text.may_be_graph_break(reason)
                ]
            compile.in_flight = in_flight.get(compile.compile_id)
            frame = _frame(compile, stack, named)
            if frame is not None and torch_text.is_of_an_optimizer(frame[1]):
                self.updates.add(compile.compile_id)
            add_compile(self.rows, compile, stack, frame, caller)
        self.facts.finish(lambda file: _file_name(file, tables))
        names = self.strings
        self.rows.extend("strings", {"log": [self.log] * len(names), "id": list(names), "text": list(names.values())})
        for spans in self._spans.values():
            spans.finish(self.rows)

    def _fitting(self, tables: Iterable[StringTable]) -> list[StringTable]:
        """Return the string tables that this process may have inherited, likeliest first: the last frame of a compile's
        stack is the function whose file its metrics name."""
        named = [
            (compile.stack[-1][0], frame[1])
            for compile in self.compiles.values()
            if compile.started
            and compile.stack
            and (frame := compile.frame())
            and isinstance(compile.stack[-1][0], int)
        ]
        asked = [(number, file) for number, file in named if number not in self.strings]
        scored = [
            (sum(1 if table.get(n) == file else -1 for n, file in asked if n in table), table) for table in tables
        ]
        return [table for score, table in sorted(scored, key=lambda pair: -pair[0]) if score >= 0]

    def _named_frames(self) -> dict[str, Frame]:
        """Return the function that metrics name, by each prefix of a compile id up to a slash."""
        named: dict[str, Frame] = {}
        for compile in self.compiles.values():
            frame, prefix = compile.frame(), compile.compile_id
            while frame is not None and "/" in prefix:
                prefix = prefix.rpartition("/")[0]
                named.setdefault(prefix, frame)
        return named

    def _compile(self, record: LogRecord) -> Compile:
        assert record.compile_id is not None
        compile = self.compiles.get(record.compile_id)
        if compile is None:
            compile = self.compiles[record.compile_id] = Compile(
                self.log, record.compile_id, record.time_ns, record.record
            )
        return compile

    def _string(self, record: LogRecord) -> None:
        value = record.value
        number = whole_number(value[1]) if isinstance(value, list) and len(value) == 2 else None
        if number is not None and isinstance(value[0], str):
            self.strings[number] = value[0][:LONGEST_NAME]
        else:
            self._absurd(record, "a string table entry is [text, number]")

    def _dynamo_start(self, record: LogRecord) -> None:
        if record.compile_id is None:
            return
        stack = record.value.get("stack") if isinstance(record.value, dict) else None
        if self._compile(record).started and not record.header.attempt:
            self._begin_anew(record)
            record = record._replace(header=self.ids.other_header(record) or record.header)
        self._compile(record).start(_raw_stack(stack))

    def _begin_anew(self, record: LogRecord) -> None:
        """Begin a new count of ids after `torch._dynamo.reset()`, shown by an id that an ended compile has already."""
        prefix = self.ids.begin_anew(record)
        if record.pid in self._spans:
            self._spans[record.pid].prefix = prefix

    def _metrics(self, record: LogRecord) -> None:
        if record.compile_id is None:
            return
        if isinstance(record.value, dict):
            self._compile(record).add_metrics(record.value, record.record)
        else:
            self._absurd(record, "compilation metrics are an object")

    def read_span(self, record: LogRecord) -> None:
        """Read a chromium event."""
        event = self._chromium_event(record)
        if type(event) is not dict:
            if event is not None:
                self._absurd(record, "a chromium event is an object")
            return
        pid = record.header.pid
        spans = self._spans.get(pid)
        if spans is None:
            spans = self._spans[pid] = Spans(self.log, self.ids.prefix(pid))
        if event.get("ph") == "B" and event.get("name") in OUTER_SPANS:
            compile = self.compiles.get(spans.prefix + (compile_id_of(event) or ""))
            # The event's own id normally equals that of its header; if not, the log was edited and the id is ignored.
            if compile is not None and compile.has_ended() and record.compile_id in (None, compile.compile_id):
                self._begin_anew(record)
        span = spans.read(event)
        if span is None or span.compile_id not in self.compiles:
            return
        compile = self.compiles[span.compile_id]
        compile.span_start_ns = min(span.start_ns, compile.span_start_ns or span.start_ns)
        if span.name != OUTER_SPANS[1]:
            compile.span_duration_ns = (compile.span_duration_ns or 0) + span.duration_ns

    def _output_code(self, record: LogRecord) -> None:
        filename = text(record.value.get("filename")) if isinstance(record.value, dict) else None
        key = filename.replace("\\", "/").rsplit("/", 1)[-1].removesuffix(".py") if filename else None
        cached = "codecache" in record.source
        aot_id = torch_text.aot_id(record.payload or b"")
        self.output_codes.append(OutputCode(record.record, key, aot_id, record.compile_id, cached))

    def _guards(self, record: LogRecord) -> None:
        if record.compile_id is not None:
            self._compile(record).wrapped = torch_text.wrapped_class(record.payload or b"")

    def _other_artifact(self, record: LogRecord) -> None:
        if cache_of(record.name or "") is not None:
            is_json = (record.payload or b"").lstrip()[:1] == b"{"
            self.facts.look_up(record, self._json_payload(record) if is_json else None)

    def _cache(self, record: LogRecord) -> None:
        payload = self._json_payload(record)
        self.facts.look_up(record, payload)
        if record.compile_id is None or record.name is None:
            return
        compile = self._compile(record)
        level, state = record.name.rsplit("_", 1)
        (compile.graph_cache if level == "fx_graph_cache" else compile.autograd_cache).add(state)
        if state == "bypass":
            reason = text(payload.get("cache_bypass_reason")) if isinstance(payload, dict) else None
            cause = Cause(torch_text.headline(reason or "no reason given"), reason or "", None)
            compile.events.append(("cache_bypass", record.record, cause))

    def _recompile_reasons(self, record: LogRecord) -> None:
        if record.compile_id is None or record.payload is None:
            return
        body = record.payload.decode("utf-8", "replace")
        found = self._json_payload(record) if body.lstrip().startswith("[") else [body]
        texts = [text for text in found if isinstance(text, str)] if isinstance(found, list) else []
        if texts:
            reasons = [torch_text.with_prefix(text, self.ids.prefix(record.pid)) for text in texts]
            cause = torch_text.recompile_reason(reasons[0])
            full = Cause(cause.cause, "\n".join(reasons), cause.frame)
            self._compile(record).events.append(("recompile", record.record, full))

    def _graph_break(self, record: LogRecord) -> None:
        self.logs_breaks = True
        if record.compile_id is not None and record.payload is not None:
            cause = torch_text.graph_break(record.payload.decode("utf-8", "replace"))
            self._compile(record).events.append(("graph_break", record.record, cause))

    def _error(self, record: LogRecord) -> None:
        if record.compile_id is not None and record.payload is not None:
            compile = self._compile(record)
            body = record.payload.decode("utf-8", "replace")
            compile.error, compile.error_record = _error_cause(body), record.record

    def _error_without_id(self, record: LogRecord) -> None:
        payload = self._json_payload(record)
        kind, said = (text(payload.get(key)) for key in ("type", "text")) if isinstance(payload, dict) else (None, None)
        if record.compile_id is not None and kind:
            self._compile(record).fail_without_id(kind, said or "", record.record)

    def _torch_version(self, record: LogRecord) -> None:
        self.logs_breaks = True
        payload = self._json_payload(record)
        self.torch_version = text(payload.get("pytorch_version")) if isinstance(payload, dict) else None

    def _json_payload(self, record: LogRecord) -> Any:
        """Return the JSON payload, or None if it is invalid, which is counted unless the record is damaged anyway."""
        try:
            return loads(record.payload or b"")
        except ValueError as error:
            if record.sound:
                self.damage.add("broken_payload", f"{record.event}: {error}", *record.place)
            return None

    def _chromium_event(self, record: LogRecord) -> Any:
        """Return the event without the components of cache keys: long lists that its artifact has too."""
        payload = record.payload or b""
        begin = payload.find(_COMPONENTS) if len(payload) > _LONG_EVENT else -1
        end = _LIST_END.search(payload, begin) if begin >= 0 else None  # no string of JSON holds a line break
        if end is not None:
            payload = payload[: begin + len(_COMPONENTS)] + payload[end.start() :]
        try:
            return orjson.loads(payload)
        except orjson.JSONDecodeError:
            return self._json_payload(record)

    def _absurd(self, record: LogRecord, rule: str) -> None:
        self.damage.add("absurd_value", f"{record.event}: {rule}", *record.place)


def _frame(compile: Compile, stack: Stack, named: Mapping[str, Frame]) -> Frame | None:
    """Return the compiled function, which a refused compile shares with other compiles of its frame."""
    found = compile.frame() or named.get(compile.compile_id.rpartition("/")[0] or compile.compile_id)
    if found is None and stack:
        return stack[-1].function, stack[-1].file, stack[-1].line
    return found


def _raw_stack(stack: object) -> list[RawFrame]:
    frames = stack[:_LONGEST_STACK] if isinstance(stack, list) else []
    return [_raw_frame(frame) for frame in frames if isinstance(frame, dict)]


def _raw_frame(frame: dict[str, Any]) -> RawFrame:
    return (
        frame.get("filename"),
        whole_number(frame.get("line")),
        text(frame.get("name")) or "",
        text(frame.get("loc")) or "",
    )


def _resolve(compile: Compile, tables: list[StringTable]) -> Stack:
    return [
        UserFrame(_file_name(file, tables), line if line is not None else 0, function, code)
        for file, line, function, code in compile.stack
    ]


def _file_name(file: object, tables: list[StringTable]) -> str:
    if isinstance(file, str):
        return file
    if isinstance(file, int):
        return next((table[file] for table in tables if file in table), f"<file {file}>")
    return "<unknown file>"


def _error_cause(body: str) -> Cause:
    """Return the cause of a `dynamo_error`: the last line of its traceback that begins with the exception's name."""
    last = body.split("\nfrom user code:", 1)[0].strip().split("\n")
    named = [line for line in last if line and not line.startswith((" ", "Traceback"))]
    return Cause(torch_text.headline(named[-1] if named else body), body, user_frame(body))
