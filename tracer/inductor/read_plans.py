"""Decides which arguments of a wrapper's launches are read, according to the configuration."""

from __future__ import annotations

from typing import Protocol

from stepscope.tracer.config import TraceConfig
from stepscope.tracer.inductor import compat
from stepscope.tracer.runtime.stats.readers import why_not_compiled
from stepscope.tracer.runtime.values.reading import PlanPoint, ReadPlan, ValueSink, writes_at_once
from stepscope.tracer.runtime.values.rows import PlannedRead
from stepscope.tracer.runtime.values.save import TensorSaver
from stepscope.tracer.schema.gaps import Skipped
from stepscope.tracer.schema.graphs import Argument
from stepscope.tracer.wrapper.parsed import WrapperSource
from stepscope.tracer.wrapper.read_points import Read, ReadPoint
from stepscope.tracer.wrapper.versions import follow


class PlanSink(ValueSink, Protocol):
    """The part of the recorder that a plan of reads needs."""

    saver: TensorSaver

    def skipped(self, record: Skipped) -> None: ...


def read_plan(wrapper: WrapperSource, config: TraceConfig, sink: PlanSink) -> tuple[list[ReadPoint], ReadPlan | None]:
    """Return the points at which tensors of `wrapper` are read, and the plan; no points and None if none are read."""
    if config.level not in ("values", "save"):
        return [], None
    saves = config.level == "save"
    points = follow(
        wrapper,
        lambda site, argument: config.wants_kernel(site.kernel) and config.wants_argument(*_names(argument)),
        again=config.verify_before or saves,
        deferred=wrapper.is_cuda and not saves and not writes_at_once(config),
    ).points
    saver = sink.saver if saves else None
    planned = [
        PlanPoint(
            [_planned(wrapper, read) for read in point.reads], config.max_bytes_per_tensor, saver, config.elements
        )
        for point in points
    ]
    if wrapper.is_cuda and compat.uses_cuda_graphs():
        import torch

        from stepscope.tracer.runtime.stats import cuda

        cuda.preload(torch.cuda.current_device())  # kernels cannot be loaded while a CUDA graph is being captured
    elif not wrapper.is_cuda and (why := why_not_compiled()) is not None:
        sink.skipped(Skipped("quick statistics", f"{why}; torch's operations are used"))
    return points, ReadPlan(planned, config, sink)


def _planned(wrapper: WrapperSource, read: Read) -> PlannedRead:
    launch = wrapper.launches[read.site].site
    argument = launch.arguments[read.argument]
    return PlannedRead(
        read.site,
        read.argument,
        read.moment,
        launch.kernel,
        argument.buffer or argument.name,
        read.is_fixed,
        read.is_checked,
        _names(argument),
    )


def _names(argument: Argument) -> tuple[str, ...]:
    return tuple(name for name in (argument.name, argument.buffer, argument.parameter) if name)
