"""The command for CI: `stepscope check`."""

from __future__ import annotations

import sys
from contextlib import ExitStack

import click

from stepscope.viewer.cli.commands import (
    PATH,
    ReadingCommand,
    chosen,
    echo_json,
    json_option,
    latest_option,
    trace_argument,
)
from stepscope.viewer.errors import StepscopeError

FORMAT = "stepscope-check/1"


@click.command(cls=ReadingCommand)
@trace_argument
@click.option(
    "--fail-on",
    metavar="KINDS",
    help="Fail on findings of these kinds, separated by commas. [default: all warnings and critical findings]",
)
@click.option(
    "--baseline",
    type=PATH,
    metavar="TRACE",
    help="Fail only on what became worse since this trace: new findings, a higher peak of memory, slowdowns.",
)
@click.option("--strict", is_flag=True, help="Also fail if a log is damaged or contains records of unknown kinds.")
@json_option
@latest_option
def check(
    trace: list[str], fail_on: str | None, baseline: str | None, strict: bool, as_json: bool, latest: bool
) -> None:
    """Exit with 1 if the trace has findings that matter. This is for CI."""
    from stepscope.viewer.compare.baseline import Against, against
    from stepscope.viewer.findings import all_findings, kinds_of
    from stepscope.viewer.overview.queries.damage import damage_texts
    from stepscope.viewer.store.open import open_trace
    from stepscope.viewer.text.clean import clean
    from stepscope.viewer.text.formats import plural

    kinds = _kinds(fail_on)
    worse: Against | None = None
    with ExitStack() as opened:
        ours = opened.enter_context(open_trace(chosen(trace, latest)))
        findings, damage = all_findings(ours), damage_texts(ours) if strict else []
        hits = [f for f in findings if (f.severity != "info" if kinds is None else kinds & kinds_of(f))]
        if baseline is not None:
            base = opened.enter_context(open_trace([str(baseline)]))
            worse = against(ours, base, hits, all_findings(base))
    told = [f"{hit.severity}: {hit.kind}: {hit.title}" for hit in hits]
    failures = [*(told if worse is None else (one.sentence for one in worse.regressions)), *damage]
    if as_json:
        echo_json(
            {
                "format": FORMAT,
                "has_failed": bool(failures),
                "findings": hits,
                "regressions": None if worse is None else worse.regressions,
                "notes": [] if worse is None else worse.notes,
                "damage": damage,
            }
        )
    else:
        for line in [*failures, *(f"note: {note}" for note in (worse.notes if worse is not None else ()))]:
            click.echo(clean(line))
        if not failures:
            what = "finding fails the check" if worse is None else "regression was found"
            click.echo(f"ok: no {what}; the trace has {plural(len(findings), 'finding')} in all")
    if failures:
        sys.exit(1)


def _kinds(fail_on: str | None) -> set[str] | None:
    """Return the kinds of findings that were asked for; None if none were named."""
    from stepscope.viewer.findings import KINDS

    if fail_on is None:
        return None
    kinds = {kind.strip() for kind in fail_on.split(",") if kind.strip()}
    if not kinds:
        raise StepscopeError(f"--fail-on names no kind of finding; use one of: {', '.join(KINDS)}")
    unknown = sorted(kinds - set(KINDS))
    if unknown:
        raise StepscopeError(
            f"--fail-on names {', '.join(unknown)}, which is not a kind of finding; use one of: {', '.join(KINDS)}"
        )
    return kinds
