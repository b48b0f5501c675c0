"""The capabilities of the viewer: one line for each, from which routes, JSON, filters, navigation and report come."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

from stepscope.viewer.web.addresses import Page, Twin

if TYPE_CHECKING:
    from stepscope.viewer.web.addresses import Route


@dataclass(frozen=True)
class Section:
    """An entry of the navigation."""

    name: str
    path: str
    tally: str | None = None
    """The field of `Counts` that is shown beside the name."""
    least: int = 0
    """A smaller tally is not shown."""


@dataclass(frozen=True)
class Capability:
    """A folder of the viewer. Its modules are imported when they are needed: the first page waits for no other."""

    room: str
    sections: tuple[Section, ...] = ()
    pages: tuple[str, ...] = ("page",)
    """Modules with a tuple `ROUTES`."""
    has_filters: bool = False
    """Its module `filters` has what its templates use: `FILTERS` and `GLOBALS`."""
    in_report: bool = False
    """Its module `report` has `collect`, which chooses its part of a report, and `data`, which scripts draw."""

    def module(self, name: str) -> ModuleType:
        return import_module(f"stepscope.viewer.{self.room}.{name}")


CAPABILITIES = (
    Capability(
        "overview", (Section("Overview", "/"),), ("page", "summary", "problems_page"), has_filters=True, in_report=True
    ),
    Capability("steps", (Section("Steps", "/steps", "steps"),), has_filters=True, in_report=True),
    Capability("graphs", (Section("Graphs", "/graphs", "graphs"),), has_filters=True, in_report=True),
    Capability("memory", (Section("Memory", "/memory"),), ("page", "graph_page"), has_filters=True, in_report=True),
    Capability(
        "values",
        (Section("Kernels", "/kernels"), Section("Values", "/values", "value_rows")),
        has_filters=True,
        in_report=True,
    ),
    Capability(
        "compiles",
        (Section("Compile", "/compile", "compiles"),),
        ("page", "compile_page", "provenance_page", "summary_page"),
        has_filters=True,
        in_report=True,
    ),
    Capability("ranks", (Section("Ranks", "/ranks", "logs", least=2),), in_report=True),
    Capability("records", (Section("Records", "/records", "records"),)),
    Capability("search", (Section("SQL", "/sql"),)),
    Capability("exports"),
)


def routes() -> Iterator[Route]:
    """Every address. A capability is imported when those before it have been passed over."""
    for capability in CAPABILITIES:
        for name in capability.pages:
            yield from capability.module(name).ROUTES


def pages() -> list[Page]:
    return [route for route in routes() if isinstance(route, Page)]


def twins() -> Iterator[Twin]:
    """Every address that answers in JSON: a twin for each page, and those that have no page."""
    for route in routes():
        if isinstance(route, Twin):
            yield route
        elif isinstance(route, Page):
            yield route.twin


def navigation() -> list[Section]:
    return [section for capability in CAPABILITIES for section in capability.sections]


def filters() -> Iterator[ModuleType]:
    """The modules with the filters of templates."""
    return (capability.module("filters") for capability in CAPABILITIES if capability.has_filters)


def reports() -> Iterator[ModuleType]:
    """The modules that choose a part of the report."""
    return (capability.module("report") for capability in CAPABILITIES if capability.in_report)
