"""Writes a ticket as markdown for the text of an issue, whose length hosts limit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from stepscope.tracer._version import __version__
from stepscope.viewer.compare.text import render as comparison_text
from stepscope.viewer.errors import StepscopeError
from stepscope.viewer.graphs.rows import SourceLine
from stepscope.viewer.overview.filters import evidence_parts
from stepscope.viewer.overview.finding_groups import FindingGroup, finding_groups
from stepscope.viewer.overview.rows import SEVERITY_SIGNS, Finding
from stepscope.viewer.overview.summary_text import render
from stepscope.viewer.report.facts import ticket_facts
from stepscope.viewer.report.ticket import Ticket
from stepscope.viewer.text.formats import evidence_label, evidence_text, plural
from stepscope.viewer.text.markdown import block, code, folded, prose
from stepscope.viewer.web.frame import run_facts

MOST_CHARACTERS = 65_536
"""Maximum length of the text of an issue on GitHub."""
MOST_FINDINGS = 40
_MOST_IN_FINDING = 4_000
_MOST_IN_TABLE = 12
_LONGEST_NOTE = 8_000


@dataclass(frozen=True)
class Section:
    """A part of the text."""

    what: str
    """What it is, for the sentence that says it was left out."""
    text: str
    rank: int
    """Of several sections, the one with the highest rank is left out first."""


def render_markdown(ticket: Ticket, most_bytes: int | None = None) -> str:
    """Return the text of at most `MOST_CHARACTERS` characters and `most_bytes` bytes, which says what it leaves out.

    Raises StepscopeError if even the shortest text is too long, or if it holds what is redacted."""
    sections, left_out = list(_sections(ticket)), [*ticket.left_out]
    while True:
        text = "\n\n".join([*(section.text for section in sections), *_ending(ticket, left_out)]) + "\n"
        if len(text) <= MOST_CHARACTERS and (most_bytes is None or len(text.encode()) <= most_bytes):
            ticket.checked("The markdown text", text.encode())
            return text
        gone = max(range(len(sections)), key=lambda index: (sections[index].rank, index))
        if not sections[gone].rank:
            raise StepscopeError(f"The shortest text has {len(text.encode()):,} bytes: give a larger --max-size.")
        left_out.append(sections.pop(gone).what)


def _sections(ticket: Ticket) -> Iterator[Section]:
    overview = ticket.contents.overview
    facts = [prose(fact) for fact in run_facts(overview)]
    redacted = " (redacted)" if ticket.redaction else ""
    yield Section("the title", f"**stepscope report{redacted}**: {' · '.join(facts) or 'no run record'}", 0)
    if ticket.note:
        yield Section("the note", block(ticket.note[:_LONGEST_NOTE]), 1)
    yield Section("the heading", "### Concluded\nBy the rules beside the findings, from what was measured.", 0)
    if not overview.findings:
        yield Section("the findings", "No findings.", 0)
    ruled = {""}
    groups = finding_groups(overview.findings)
    for number, group in enumerate(groups[:MOST_FINDINGS], 1):
        told = _finding(group, "" if group.first.rule in ruled else group.first.rule)
        ruled.add(group.first.rule)
        yield Section(f"finding {number}", told, 2 + (number > 3) * (20 + number))
    if len(groups) > MOST_FINDINGS:
        rest = sum(1 + len(group.others) for group in groups[MOST_FINDINGS:])
        yield Section("the number of findings", f"… and {rest:,} more findings.", 0)
    if overview.notes:
        yield Section("what the findings rest on", "\n".join(prose(note) for note in overview.notes), 1)
    if comparison := ticket.contents.shown["comparison"]:
        yield Section("the comparison", "### Compared with another run\n" + block(comparison_text(comparison)), 5)
    yield Section("the heading", "### Measured", 0)
    yield from _facts(ticket)
    yield Section("the tables of steps, graphs and compiles", _measured(ticket), 10)
    yield from _code(ticket)


def _finding(group: FindingGroup, rule: str) -> str:
    row = group.first
    lines = [f"- {SEVERITY_SIGNS[row.severity]} **{prose(row.title)}**"]
    if row.source is not None:
        lines.append(f"  at {_place(row.source)}")
    lines += [f"  - {code(line)}" for line in row.proof]
    if group.others:
        lines.append(f"  - It is found in {plural(len(group.others), 'more log')}, too.")
    return "\n".join(lines) + f"\n\n{_folded_evidence(row, rule)}\n"


def _folded_evidence(row: Finding, rule: str) -> str:
    """Return the evidence and the rule in a section that folds."""
    lines, parts = [], evidence_parts(row)
    for name, value in parts.facts.items():
        lines.append(f"- {prose(evidence_label(name, value))}: {code(evidence_text(value, name))}")
    for name, rows in parts.tables.items():
        lines.append(f"- {prose(evidence_label(name, rows))}:")
        lines += [f"  - {_row(item)}" for item in rows[:_MOST_IN_TABLE]]
        if len(rows) > _MOST_IN_TABLE:
            lines.append(f"  - … and {len(rows) - _MOST_IN_TABLE:,} more")
    if not rule:
        return folded("evidence", _bounded(lines))
    return folded("evidence and rule", f"{_bounded(lines)}\n- rule: {prose(rule)}")


def _bounded(lines: Sequence[str]) -> str:
    kept: list[str] = []
    for number, line in enumerate(lines):
        if number and sum(map(len, kept)) + len(line) > _MOST_IN_FINDING:
            kept.append(f"- … and {len(lines) - number:,} more lines of evidence")
            break
        kept.append(line)
    return "\n".join(kept)


def _row(item: dict[str, Any]) -> str:
    known = [(name, value) for name, value in item.items() if value is not None and value != []]
    return code(", ".join(f"{evidence_label(name, value)} {evidence_text(value, name)}" for name, value in known))


def _place(line: SourceLine) -> str:
    shown = code(f"{line.file}:{line.line} in {line.function}")
    return f"{shown}: {code(line.code)}" if line.code else shown


def _measured(ticket: Ticket) -> str:
    contents = ticket.contents
    compiles = [detail.row for detail in contents.shown.get("compiles", [])]
    problems = getattr(contents.shown.get("problems"), "problems", [])
    text = render(replace(contents.overview, findings=[]), compiles, problems)
    return folded("Steps, graphs, compiles and what was not recorded", block(text.partition("\n\n")[2]))


def _facts(ticket: Ticket) -> Iterator[Section]:
    facts = ticket_facts(ticket.contents.overview.runs)
    unknown = "removed, or not recorded" if ticket.redaction else "not recorded"
    rows = [f"| {prose(fact.name)} | {code(fact.value) if fact.value else unknown} |" for fact in facts.facts]
    yield Section("the facts of the run", "\n".join(["| Fact | Value |", "|---|---|", *rows]), 3)
    for number, lines in enumerate(facts.lists):
        if lines.lines:
            title = f"{lines.title} ({len(lines.lines):,})"
            what = f"the list “{lines.title}”"
            yield Section(what, folded(title, block("\n".join(lines.lines))), 5 + number)


def _code(ticket: Ticket) -> Iterator[Section]:
    """Yield the generated code of the graphs that findings name, or of the first graph."""
    pages = ticket.contents.shown.get("graphs", [])
    named = {finding.graph for finding in ticket.contents.overview.findings}
    chosen = [page for page in pages if page.detail.row.graph in named] or pages[:1]
    for number, page in enumerate(chosen):
        graph, text = page.detail.row.graph, page.detail.code
        if text:
            body = block(text, "python")
            yield Section(
                f"the generated code of graph {graph}", folded(f"Generated code of graph {graph}", body), 70 + number
            )


def _ending(ticket: Ticket, left_out: Sequence[str]) -> Iterator[str]:
    redaction = ticket.redaction
    if redaction is not None:
        yield f"Redacted. {redaction.sentence}"
    if left_out:
        yield f"Left out of this text for its size: {'; '.join(left_out)}."
    yield f"<sub>Written by stepscope {__version__}. `stepscope report` and `stepscope serve` show everything.</sub>"
