"""Views of Dynamo's records about a frame: its start, graph breaks, recompiles and failures."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from stepscope.viewer.ingest.torch_trace import torch_text
from stepscope.viewer.ingest.torch_trace.torch_text import Cause
from stepscope.viewer.records.rows import (
    MAX_ROWS,
    Block,
    Cell,
    Column,
    Fact,
    FactsView,
    ListView,
    NoteView,
    StackView,
    TableView,
    TextView,
)
from stepscope.viewer.records.views.code_views import payload_of
from stepscope.viewer.records.views.json_views import json_blocks
from stepscope.viewer.records.views.measures import NOT_SAID
from stepscope.viewer.records.views.record import LoggedRecord
from stepscope.viewer.records.views.shape import Odd, as_dict, as_list, parsed, shown, text_or_none
from stepscope.viewer.records.views.stacks import stack_view
from stepscope.viewer.text.guard_tree import split_guard
from stepscope.viewer.text.tracebacks import user_frames

_SIDE_EFFECT = re.compile(r"={20,}")
_OF_CODE = re.compile(r"(\d+/\d+): ")
_STATE = re.compile(r"^(\S.*?):(?P<line>\d{1,9}):(?P<function>[^:\n]+):?$")


def start(record: LoggedRecord) -> list[Block]:
    """Show the stack of the frame that Dynamo starts to compile."""
    stack = stack_view(as_dict(record.metadata).get("stack"), record.around.strings, "Stack of the compiled frame")
    return [stack] if stack else [NoteView("PyTorch logged no stack for it.")]


def string(record: LoggedRecord) -> list[Block]:
    value = as_list(record.metadata)
    if len(value) != 2:
        raise Odd("it is not a pair of a text and a number")
    return [FactsView([Fact("number", Cell(shown(value[1]))), Fact("text", Cell(shown(value[0]), mono=True))])]


def link(record: LoggedRecord) -> list[Block]:
    metadata = as_dict(record.metadata)
    url = text_or_none(metadata.get("url"))
    href = url if url is not None and is_web_address(url) else None
    facts = [
        Fact("name", Cell(text_or_none(metadata.get("name")), NOT_SAID)),
        Fact("address", Cell(url, NOT_SAID, href)),
    ]
    if url is None or href is not None:
        return [FactsView(facts)]
    return [FactsView(facts), NoteView("Only http and https addresses become links.", warning=True)]


def is_web_address(url: str) -> bool:
    """Return whether `url` is an http(s) address with a host, as only these become links."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.netloc) and url.isprintable() and url == url.strip()


def graph_break(record: LoggedRecord) -> list[Block]:
    text = payload_of(record)
    return _caused(torch_text.graph_break(text), text)


def error(record: LoggedRecord) -> list[Block]:
    """Show a traceback: its headline, the user's frames, and the full text."""
    text = payload_of(record)
    named = [line for line in text.split("\nfrom user code:", 1)[0].split("\n") if line and line[0] not in " \t"]
    headline = next((line for line in named[::-1] if not line.startswith("Traceback")), "")
    return _caused(Cause(torch_text.headline(headline), "", torch_text.user_frame(text)), text)


def _caused(cause: Cause, text: str) -> list[Block]:
    place = None if cause.frame is None else f"{cause.frame.file}:{cause.frame.line}"
    facts = [
        Fact("cause", Cell(cause.cause or None, NOT_SAID)),
        Fact("at", Cell(place, "the text names no program line", mono=True)),
    ]
    if cause.frame is not None and cause.frame.code:
        facts.append(Fact("code", Cell(cause.frame.code, mono=True)))
    frames = user_frames(text)
    blocks: list[Block] = [FactsView(facts)]
    if frames:
        blocks.append(StackView(frames, "Program lines"))
    return [*blocks, TextView(text, "PyTorch's full text")]


def recompile(record: LoggedRecord) -> list[Block]:
    """Show the failed guard of each code that was compiled before for the frame."""
    text = payload_of(record)
    reasons = as_list(parsed(text)) if text.lstrip()[:1] == "[" else [text]
    rows = []
    for reason in reasons:
        of_code = _OF_CODE.match(shown(reason))
        guard = split_guard(shown(reason)[of_code.end() if of_code else 0 :].split("\n", 1)[0])
        rows.append([Cell(of_code[1] if of_code else None, NOT_SAID, mono=True),
                Cell(guard.code, mono=True), Cell(guard.user_code or None, NOT_SAID, mono=True),
                     Cell(guard.place or None, NOT_SAID, mono=True)])  # fmt: skip
    columns = [Column("code of"), Column("guard that failed"), Column("program line"), Column("at")]
    note = NoteView("One row for each compiled code of this frame, newest first. A guard of each of them failed.")
    return [TableView(columns, rows), note, TextView("\n".join(map(shown, reasons)), "PyTorch's text")]


def side_effects(record: LoggedRecord) -> list[Block]:
    parts = [part.strip() for part in _SIDE_EFFECT.split(payload_of(record)) if part.strip()]
    return [TextView(part, f"Side effect {number}") for number, part in enumerate(parts, 1)]


def compile_reasons(record: LoggedRecord) -> list[Block]:
    """Show why compiled autograd recompiled, as a list."""
    value = parsed(record.payload)
    if not isinstance(value, list):
        return json_blocks(value)
    return [ListView([Cell(shown(item)) for item in value])]


def code_state(record: LoggedRecord) -> list[Block]:
    """Show the inputs of each function that varied, from profile-guided optimisation (PGO)."""
    rows: list[list[Cell]] = []
    place: Cell | None = None
    states, advice, detected = payload_of(record).partition("\n\nPGO detected ")
    for line in states.split("\n"):
        match = _STATE.match(line)
        if match:
            place = Cell(f"{match[1]}:{match['line']} in {match['function']}", mono=True)
        elif line.strip() and place is not None:
            name, _, seen = line.strip().partition(": ")
            rows.append([place, Cell(name, mono=True), Cell(seen, mono=True)])
    if not rows:
        return [TextView(payload_of(record))]
    columns = [Column("function"), Column("input"), Column("seen as")]
    blocks: list[Block] = [TableView(columns, rows[:MAX_ROWS], "", max(0, len(rows) - MAX_ROWS))]
    return [*blocks, TextView(advice.strip() + " " + detected)] if advice else blocks
