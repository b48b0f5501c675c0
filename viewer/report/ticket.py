"""Gathers what a ticket shows, redacted if asked for; the report, the markdown text and the archive are made of it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

from stepscope.viewer.errors import StepscopeError
from stepscope.viewer.overview.queries.overview import overview
from stepscope.viewer.overview.summary import summary
from stepscope.viewer.redaction import scan
from stepscope.viewer.redaction.kinds import KINDS
from stepscope.viewer.redaction.queries.log_texts import log_texts
from stepscope.viewer.redaction.redactor import Redactor
from stepscope.viewer.redaction.secrets import Secrets
from stepscope.viewer.report.contents import Contents
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.text.clean import well_formed
from stepscope.viewer.text.formats import progress_bar
from stepscope.viewer.web import registry
from stepscope.viewer.web.parts import failures

Say = Callable[[str], None]


@dataclass(frozen=True)
class Redaction:
    """What was removed from a ticket."""

    kept: frozenset[str]
    counts: dict[str, int]
    """Number of different texts that were removed, by kind."""
    secrets: Secrets
    shown: Collection[str]

    @property
    def sentence(self) -> str:
        parts = [f"{KINDS[kind][0]} ({count:,})" for kind, count in self.counts.items() if count]
        removed = f"Removed, each counted once: {'; '.join(parts) or 'nothing'}."
        if "values" not in self.kept:
            removed += " Numbers read from tensors are removed, too; their classes stay."
        names = [kind for kind in KINDS if kind in self.kept]
        return removed + (f" Kept by request: {', '.join(names)}." if names else "")


@dataclass
class Ticket:
    """The contents of a ticket, which are redacted already if `redaction` is set."""

    trace: Trace
    contents: Contents
    answer: dict[str, Any]
    """The answer of `stepscope summary --json`."""
    note: str | None = None
    source_link: str | None = None
    """Template of the addresses of source lines, which `source_links.checked` accepts."""
    redaction: Redaction | None = None
    left_out: list[str] = field(default_factory=list)
    """What was left out to respect a maximum size."""

    def checked(self, name: str, data: bytes) -> bytes:
        """Return the bytes of a finished file. Raises StepscopeError if one holds what redaction removes."""
        if self.redaction is not None:
            scan.check(name, data, self.redaction.secrets, self.redaction.shown, self.trace)
        return data


def silent(_text: str) -> None:
    pass


def gather(
    trace: Trace,
    *,
    redact: bool = False,
    keep: frozenset[str] = frozenset(),
    note: str | None = None,
    source_link: str | None = None,
    against: str | None = None,
    say: Say = silent,
) -> Ticket:
    """Collect the contents of a ticket. With `redact`, the ticket holds only texts that provably come from no program,
    file or machine, those of the kinds `keep`, no note and no links to source. With `against`, it holds the comparison
    with that trace. Raises StepscopeError if that is impossible, or is to be redacted."""
    if redact and against is not None:
        raise StepscopeError("A comparison shows names and code of two runs: give --redact or --against, not both.")
    say("collecting the findings")
    answer = summary(trace)
    contents = collect(trace, say, against)
    if not redact:
        return Ticket(trace, contents, answer, well_formed(note) if note else None, source_link)
    say("removing what the program, its files and its machine named")
    texts = {kind: found for kind, found in log_texts(trace).items() if kind not in keep}
    redactor = Redactor(keep, Secrets(texts))
    contents, answer = redactor.redact(contents), redactor.redact(answer)
    contents.left_out += [] if "source" in keep else ["source and generated code"]
    contents.left_out += ["the note"] if note else []
    removed = {kind: redactor.removed.get(kind, set()) | texts.get(kind, set()) for kind in KINDS if kind not in keep}
    gone = [text for found in redactor.removed.values() for text in found]
    counts = {kind: len(redactor.removed.get(kind, ())) for kind in removed}
    for kind in ("user", "host"):
        counts[kind] = sum(any(name in text for text in gone) for name in removed.get(kind, ()))
    redaction = Redaction(keep, counts, Secrets(texts, removed), redactor.shown)
    return Ticket(trace, contents, answer, redaction=redaction)


def collect(trace: Trace, say: Say = silent, against: str | None = None) -> Contents:
    """Collect the contents of the report; a part that fails is left out and named."""
    contents = Contents(overview(trace), against)
    capabilities = registry.in_report()
    with failures() as failed:
        for done, capability in enumerate(capabilities):
            say(f"collecting the pages of {capability.folder} {progress_bar(done / len(capabilities))}")
            capability.module("report").collect(trace, contents)
    contents.failed = failed
    if contents.overview.counts.records:
        contents.left_out.append("the records themselves and their payloads")
    return contents
