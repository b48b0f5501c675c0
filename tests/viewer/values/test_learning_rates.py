"""The learning rate that findings name."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from stepscope.tracer.schema.parameters import LearningRate
from stepscope.tracer.schema.process_ends import End
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.values.queries.learning_rates import rates_of_only_optimizer, rise_between
from tests.logs.synthetic import MONOTONIC_NS, LogBuilder, run

Open = Callable[[LogBuilder | bytes], Trace]
END_NS = 2**62
"""A time after all records."""


def of_rates(opened: Open, rates: Sequence[tuple[float | None, float]]) -> Trace:
    log = LogBuilder().record(run())
    for before, rate in rates:
        log.record(LearningRate("SGD", rate, before, "/src/train.py", 12))
    return opened(log.record(End("exit", MONOTONIC_NS)))


@pytest.mark.parametrize(
    ("rates", "last"),
    [
        ([], None),
        ([(None, 0.1)], 0.1),
        ([(None, 0.1), (0.06, 0.05)], 0.05),
        ([(None, 0.1), (None, 40.0)], None),
    ],
    ids=["none", "constant", "decay", "two optimizers at one line"],
)
def test_the_last_rate_of_an_optimizer(
    opened: Open, rates: Sequence[tuple[float | None, float]], last: float | None
) -> None:
    found = rates_of_only_optimizer(of_rates(opened, rates), 0, END_NS)
    assert (found[0].rate if found else None) == last


def test_the_largest_rise_is_none_of_a_first_rate_and_of_a_decay(opened: Open) -> None:
    trace = of_rates(opened, [(None, 0.1), (0.1, 0.05), (0.05, 1.0), (0.0, 0.01), (0.4, 0.6)])
    rise = rise_between(trace, 0, 0, END_NS)
    assert rise is not None
    assert (rise.before, rise.rate, rise.source and rise.source.line) == (0.0, 0.01, 12)
    assert rise_between(of_rates(opened, [(None, 0.1), (0.1, 0.05), (0.4, 0.6)]), 0, 0, END_NS) is None
