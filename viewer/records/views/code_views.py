"""Views of code: graphs, generated wrappers and kernels, program files and bytecode."""

from __future__ import annotations

import re
from typing import Any

from stepscope.viewer.graphs.rows import SourceLine
from stepscope.viewer.records.rows import (
    LONGEST_TEXT,
    MAX_ROWS,
    Block,
    Cell,
    CodeSource,
    CodeView,
    Fact,
    FactsView,
    TextView,
)
from stepscope.viewer.records.views.json_views import pairs
from stepscope.viewer.records.views.measures import NOT_SAID
from stepscope.viewer.records.views.record import LoggedRecord
from stepscope.viewer.records.views.shape import Odd, as_dict, as_list, shown, text_or_none
from stepscope.viewer.text.highlight import Language

_FILE = re.compile(r"\s*# File: (.+?):(\d{1,9}) in ([^,]+)(?:, code: (.*))?")
_NO_SOURCE = "# No stacktrace"
_STATEMENT = re.compile(r"\s+[\w.]+(?::\s*\S.*?)?\s=\s")
_GRAPH_ID = re.compile(r"\n # graph id: (\d+)\s*\Z")


def payload_of(record: LoggedRecord) -> str:
    if record.payload is None:
        raise Odd("it has no payload")
    return record.payload


def graph(record: LoggedRecord) -> list[Block]:
    """Show a graph as `print_readable` writes it, with the program lines that its nodes came from."""
    text = payload_of(record)
    return [CodeView(text, "python", sources=graph_sources(text))]


def graph_sources(text: str) -> list[CodeSource]:
    """Return the program lines that the lines of a printed graph came from, in order of appearance."""
    found: dict[SourceLine, list[int]] = {}
    current: list[int] | None = None
    for number, line in enumerate(text[:LONGEST_TEXT].split("\n"), 1):
        comment = _FILE.match(line) if "# File: " in line else None
        if comment:
            place = SourceLine(comment[1], int(comment[2]), comment[3], (comment[4] or "").strip())
            current = found.setdefault(place, [])
        elif _NO_SOURCE in line or line.lstrip().startswith(("def ", "class ", "return ")):
            current = None
        elif current is not None and _STATEMENT.match(line):
            current.append(number)
    return [CodeSource(place, lines) for place, lines in found.items()]


def output_graph(record: LoggedRecord) -> list[Block]:
    """Show Dynamo's graph and the sizes of its tensors."""
    blocks = graph(record)
    sizes = as_dict(as_dict(record.metadata).get("sizes") or {})
    if sizes:
        blocks.append(pairs(("tensor", "size"), sizes, _shape, "Sizes", MAX_ROWS))
    return blocks


def _shape(size: Any) -> Cell:
    return Cell(f"[{', '.join(shown(item) for item in as_list(size))}]", mono=True)


def python(record: LoggedRecord) -> list[Block]:
    return [CodeView(payload_of(record), "python")]


def output_code(record: LoggedRecord) -> list[Block]:
    """Show the generated wrapper and the names of its kernels."""
    text = payload_of(record)
    path = text_or_none(record.metadata.get("filename")) if isinstance(record.metadata, dict) else None
    language: Language = "cpp" if path and path.endswith((".cpp", ".h")) else "python"
    kernels = re.findall(r"^(\w+) = async_compile\.(\w+)\(", text, re.MULTILINE)
    facts = [Fact("written to", Cell(path, NOT_SAID, mono=True)), Fact("lines", Cell(f"{text.count(chr(10)):,}"))]
    facts.append(Fact("kernels", Cell(", ".join(name for name, _ in kernels) or "none of its own", mono=bool(kernels))))
    return [FactsView(facts), CodeView(text, language)]


def graph_dump(record: LoggedRecord) -> list[Block]:
    """Show code of AOTInductor, or a graph of older versions of PyTorch."""
    metadata = as_dict(record.metadata)
    kind, text = text_or_none(metadata.get("type")), payload_of(record)
    language: Language = "cpp" if kind == "cpp" else "python"
    facts = [Fact(name, Cell(shown(item), mono=True)) for name, item in metadata.items() if item is not None]
    return [FactsView(facts), CodeView(text, language, sources=graph_sources(text))]


def dump_file(record: LoggedRecord) -> list[Block]:
    return [_named("file", record), *python(record)]


def _named(label: str, record: LoggedRecord) -> FactsView:
    name = text_or_none(as_dict(record.metadata).get("name"))
    return FactsView([Fact(label, Cell(name, NOT_SAID, mono=True))])


def pre_grad_graph(record: LoggedRecord) -> list[Block]:
    """Show a graph, and its id in the process, which follows the graph's text."""
    text = payload_of(record)
    match = _GRAPH_ID.search(text)
    facts: list[Block] = [FactsView([Fact("graph id in the process", Cell(match[1]))])] if match else []
    return [*facts, CodeView(text, "python", sources=graph_sources(text))]


def ddp_child(record: LoggedRecord) -> list[Block]:
    return [_named("part", record), *graph(record)]


def prose(record: LoggedRecord) -> list[Block]:
    return [TextView(payload_of(record))]


def graph_after_text(record: LoggedRecord) -> list[Block]:
    """Show an error and the graph in which it occurred."""
    text, mark, code = payload_of(record).partition("\nGraphModule: ")
    return [TextView(text), CodeView(code, "python", "Graph", graph_sources(code))] if mark else [TextView(text)]


def plain(record: LoggedRecord) -> list[Block]:
    """Show the payload as plain numbered lines, including SVG, which is untrusted in a log."""
    return [CodeView(payload_of(record), "text")]
