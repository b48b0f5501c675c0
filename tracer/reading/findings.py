"""The findings in a log as objects that show themselves in a terminal and in a notebook."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any, overload

from stepscope.tracer.reading.command import NotRead, ask

SIGNS = {"critical": "✖", "warning": "▲", "info": "●"}
MOST_SHOWN = 20
# Without colours of its own the table is readable in the light and the dark theme of a notebook.
_TABLE = '<table style="text-align:left"><thead><tr>{}</tr></thead><tbody>{}</tbody></table>'
_CELL = '<td style="text-align:left;vertical-align:top">{}</td>'
_HEAD = '<th style="text-align:left">{}</th>'
_COLUMNS = ("severity", "finding", "source", "step")


@dataclass(frozen=True)
class Finding:
    """One finding about a recorded run, as in docs/findings.schema.json."""

    kind: str
    severity: str
    title: str
    rule: str
    """Sentence that says how it was decided."""
    source: str | None
    """Place in the program, such as ``model.py:12``."""
    code: str | None
    step: int | None
    launch: int | None
    kernel: str | None
    evidence: dict[str, Any]

    def __str__(self) -> str:
        place = f"\n  {self.source}  {self.code or ''}".rstrip() if self.source else ""
        return f"{SIGNS.get(self.severity, '●')} {self.title}{place}"

    def _repr_html_(self) -> str:
        return f"{_table([self])}<p><small>{escape(self.kind)}: {escape(self.rule)}</small></p>"


class Findings(Sequence[Finding]):
    """The findings in a log, most severe first."""

    def __init__(self, log: Path, rows: Sequence[Finding], launches: int) -> None:
        self.log = log
        self._rows = tuple(rows)
        noun = "launch" if launches == 1 else "launches"
        self._none = f"No findings in {launches:,} {noun}." if launches else "No compiled graph ran."

    @overload
    def __getitem__(self, index: int) -> Finding: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Finding]: ...
    def __getitem__(self, index: int | slice) -> Finding | Sequence[Finding]:
        return self._rows[index]

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Finding]:
        return iter(self._rows)

    def __repr__(self) -> str:
        shown = "\n".join(map(str, self._rows[:MOST_SHOWN])) or self._none
        return f"{shown}\n{self._more()}Look at the trace: stepscope serve {self.log}"

    def _repr_html_(self) -> str:
        table = _table(self._rows[:MOST_SHOWN]) if self._rows else f"<p>{self._none}</p>"
        return f"{table}<p>{self._more()}Look at the trace: <code>stepscope serve {escape(str(self.log))}</code></p>"

    def _more(self) -> str:
        more = len(self) - MOST_SHOWN
        return f"{more:,} more finding{'s are' if more > 1 else ' is'} not shown. " if more > 0 else ""


def read_findings(log: Path) -> Findings:
    """Return the findings in a log. Raises NotRead."""
    answer = json.loads(ask("findings", log, "--json"))
    return Findings(log, [_finding(row) for row in answer["findings"]], answer["counts"]["launches"] or 0)


def html_of_log(log: Path) -> str:
    """Return the findings in a log as HTML, or the reason why they could not be read."""
    try:
        return read_findings(log)._repr_html_()
    except NotRead as error:
        return f"<p>{escape(str(error))}</p>"


def _finding(row: dict[str, Any]) -> Finding:
    source = row["source"]
    place = f"{Path(source['file']).name}:{source['line']}" if source else None
    same = {name: row[name] for name in ("kind", "severity", "title", "rule", "step", "launch", "kernel", "evidence")}
    return Finding(source=place, code=source["code"].strip() or None if source else None, **same)


def _table(rows: Sequence[Finding]) -> str:
    head = "".join(_HEAD.format(name) for name in _COLUMNS)
    return _TABLE.format(head, "".join(f"<tr>{_cells(row)}</tr>" for row in rows))


def _cells(row: Finding) -> str:
    sign = f'<span style="white-space:nowrap">{SIGNS.get(row.severity, "●")} {escape(row.severity)}</span>'
    code = f"<br><code>{escape(row.code)}</code>" if row.code else ""
    source = f"{escape(row.source)}{code}" if row.source else ""
    step = "" if row.step is None else str(row.step)
    return "".join(_CELL.format(cell) for cell in (sign, escape(row.title), source, step))
