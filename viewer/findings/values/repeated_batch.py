"""A program makes a new iterator of the same `torch.utils.data.DataLoader` at the same line in each of six or more
successive steps of an optimizer of `torch.optim`, as `next(iter(loader))` does, and takes one batch of it only, while
the loader does not shuffle and has more batches: each step gets the first batch. Only loaders with a
`SequentialSampler` count, and only iterators that are made while gradients are computed. It is information, because a
program may train on one batch on purpose, as to see whether a model can learn it, or have a dataset that makes other
items each time."""

from __future__ import annotations

from stepscope.viewer.findings.evidence import Evidence, Timed, attributes, grouped, in_logs, logs_of, rule_of
from stepscope.viewer.findings.values.operations import place
from stepscope.viewer.overview.rows import Finding
from stepscope.viewer.text.formats import plural
from stepscope.viewer.values.queries.repeated_batches import RepeatedBatchRow, repeated_batches

SUMMARY = "Each step gets the first batch of a DataLoader"
TITLE_IS_MEASURED = True


def find(evidence: Evidence) -> list[Timed]:
    """Return one finding per line of the program."""
    found = repeated_batches(evidence.trace)
    return [_finding(evidence, same) for same in grouped(found, lambda one: (one.file, one.line))]


def _finding(evidence: Evidence, same: list[RepeatedBatchRow]) -> Timed:
    one, logs = same[0], len({each.log for each in same})
    return one.time_unix_ns, Finding(
        kind="repeated_batch",
        severity="info",
        title=f"A DataLoader that does not shuffle{place(one.source)} is begun again in each of {one.steps:,} or more"
        f" steps in a row, so that each of them gets the items of the first of {one.batches:,} batches{in_logs(logs)}",
        proof=[
            f"The loader has {one.samples:,} samples; those of {plural(one.batches - 1, 'other batch')} are not used in"
            " these steps.",
            "next(iter(loader)) makes a new iterator. Loop over the loader, or make the iterator once, before the"
            " steps; with shuffle=True each new iterator begins with another batch.",
        ],
        rule=rule_of(__doc__),
        evidence=attributes(one, "batches", "samples", "batch_size", "steps") | logs_of(logs),
        page="/steps",
        rank=evidence.rank_of(one.log),
        **attributes(one, "log", "source"),
    )
