"""A `torch.utils.data.DataLoader` starts its worker processes again for each loop over it, and the program waits for
them. The finding counts the time in which workers were started again and made their first batches, from the first step
on: at least twice, at least 100 ms, and at least 15 % of the time from the first step to the last one, without the
compiles; it is a warning from 30 % on. The first loop over a loader does not count, nor do workers that
`persistent_workers=True` keeps, nor loaders that another thread reads."""

from __future__ import annotations

from stepscope.viewer.findings.evidence import Evidence, Timed, attributes, grouped, in_logs, logs_of, rule_of
from stepscope.viewer.findings.speed.costs import is_costly, severity_of, time_of
from stepscope.viewer.findings.values.operations import place
from stepscope.viewer.overview.rows import Finding
from stepscope.viewer.speed.queries.data_waits import Restarts, restarts_of_workers
from stepscope.viewer.speed.queries.verdict import share_text
from stepscope.viewer.text.formats import format_ns, plural

SUMMARY = "A DataLoader starts its workers again and again"
TITLE_IS_MEASURED = True

LEAST_RESTARTS, LEAST_NS = 2, 100_000_000


def find(evidence: Evidence) -> list[Timed]:
    """Return one finding per place of the program, about the log in which it takes the largest share."""
    return [_finding(evidence, same) for same in grouped(costly_restarts(evidence), lambda one: (one.file, one.line))]


def costly_restarts(evidence: Evidence) -> list[Restarts]:
    """Return the places whose restarts of workers are worth a finding."""
    found = restarts_of_workers(evidence.trace)
    return [
        one for one in found if one.restarts >= LEAST_RESTARTS and is_costly(one.waited_ns, one.ran_ns, LEAST_NS)
    ]  # fmt: skip


def _finding(evidence: Evidence, same: list[Restarts]) -> Timed:
    one = max(same, key=lambda one: one.waited_ns / one.ran_ns)
    share = one.waited_ns / one.ran_ns
    part = share_text(one.waited_ns, one.ran_ns)
    return time_of(evidence, one.log), Finding(
        kind="restarted_workers",
        severity=severity_of(share),
        title=(
            f"Starting the workers of a DataLoader{place(one.source)} again {plural(one.restarts, 'time')}, and waiting"
            f" for their first batches, takes {part} of the run without compiles ({format_ns(one.waited_ns)} of"
            f" {format_ns(one.ran_ns)}){in_logs(len(same))}"
        ),
        proof=[
            f"Each loop over the loader starts {plural(one.workers, 'process')}. DataLoader(...,"
            " persistent_workers=True) keeps them, so that later loops wait for the first batch alone."
        ],
        rule=rule_of(__doc__),
        evidence={
            "share": round(share, 4),
            **attributes(one, "waited_ns", "ran_ns", "restarts", "workers"),
            **logs_of(len(same)),
        },
        page=f"/steps?log={one.log}",
        rank=evidence.rank_of(one.log),
        **attributes(one, "log", "source"),
    )
