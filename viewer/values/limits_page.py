"""The page of kernels against the limits of their machine."""

from __future__ import annotations

from dataclasses import dataclass

from stepscope.viewer.store.trace import Trace
from stepscope.viewer.values.queries.kernel_limits import KernelLimit, MachineLimits, kernel_limits, machine_limits
from stepscope.viewer.values.queries.kernels import KernelRow, kernel_rows
from stepscope.viewer.web.addresses import Page, Request


@dataclass(frozen=True)
class LimitsPage:
    machine: MachineLimits
    kernels: list[KernelLimit]
    """Those that lose the most time first, and those without a limit last."""


def limits_page(trace: Trace, request: Request) -> LimitsPage:
    return limits_page_of(trace, kernel_rows(trace))


def limits_page_of(trace: Trace, rows: list[KernelRow]) -> LimitsPage:
    return LimitsPage(machine_limits(trace), kernel_limits(trace, rows))


ROUTES = (Page("/limits", "values/limits.html", "Kernels", LimitsPage, limits_page),)
