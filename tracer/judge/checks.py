"""Chooses the checks of compiled graphs that a configuration asks for, without importing torch for others."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stepscope.tracer.config import TraceConfig
    from stepscope.tracer.judge.eager_check import CheckSink, EagerChecks


def checks_of(config: TraceConfig, sink: CheckSink) -> EagerChecks | None:
    """Return the checks, or None if there are none."""
    if not config.check_eager and not config.judge_layers:
        return None
    from stepscope.tracer.judge.eager_check import EagerChecks

    return EagerChecks(sink, config.check_eager or 1, with_layers=config.judge_layers)
