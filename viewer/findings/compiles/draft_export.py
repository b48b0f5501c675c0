"""torch.export.draft_export met a problem that a strict export would have refused, so the exported program may be wrong
for other inputs. There is one finding per kind of problem. Guards that tracing added are information only, because they
restrict the inputs but do not make the program wrong."""

from __future__ import annotations

import re
from urllib.parse import urlencode

from stepscope.viewer.compiles.queries.draft_export import DraftExport, ExportFailure, draft_export
from stepscope.viewer.findings.evidence import MOST_EXAMPLES, Evidence, Timed, rule_of
from stepscope.viewer.overview.rows import Finding
from stepscope.viewer.records.queries.artifacts import record_time
from stepscope.viewer.text.formats import basename, plural

SUMMARY = "Draft export found what a strict export would refuse"

_HARMLESS = "guard added"
_SYMBOL = re.compile(r"\bu\d+\b")


def find(evidence: Evidence) -> list[Timed]:
    """Return one finding per kind of failure."""
    counts = draft_export(evidence.trace, limit=0).counts
    return [_finding(evidence, kind, count) for kind, count in counts.items()]


def _finding(evidence: Evidence, kind: str, count: int) -> Timed:
    export = draft_export(evidence.trace, kind, limit=MOST_EXAMPLES)
    rows, first = export.rows, export.rows[0]
    noun = "added guard" if kind == _HARMLESS else kind
    return record_time(evidence.trace, first.record) or 0, Finding(
        kind="draft_export",
        severity="info" if kind == _HARMLESS else "warning",
        title=f"Draft export found {plural(count, noun)}{'; the first is' if count > 1 else ':'} {_said(first)}",
        rule=rule_of(__doc__),
        evidence={"failures": count, "subjects": list(dict.fromkeys(row.subject for row in rows if row.subject))},
        proof=_symbols(export, first),
        page=f"/draft-export?{urlencode({'kind': kind})}",
        rank=evidence.rank_of(first.log),
        source=first.stack[-1] if first.stack else None,
        log=first.log,
    )


def _said(failure: ExportFailure) -> str:
    subject = failure.subject or "unnamed"
    return subject if failure.result is None else f"{subject}, assumed to be {failure.result}"


def _symbols(export: DraftExport, failure: ExportFailure) -> list[str]:
    """Return which values of the data the symbols of the failed expression are."""
    asked = _SYMBOL.findall(failure.subject or "")
    return [
        f"{one.symbol} is a value of the data, read at {basename(one.source.file)}:{one.source.line}: {one.source.code}"
        for one in export.unbacked
        if one.log == failure.log and one.symbol in asked and one.source
    ]
