"""The registry of the viewer's capabilities, which provides routes, JSON twins, filters, navigation and reports."""

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
    """An entry in the navigation."""

    name: str
    path: str
    tally: str | None = None
    """Field of `Counts` that is shown beside the name."""
    least: int = 0
    """Minimum tally that is shown."""


@dataclass(frozen=True)
class Capability:
    """A folder of the viewer, whose modules are imported on demand so that the first page appears early."""

    folder: str
    sections: tuple[Section, ...] = ()
    pages: tuple[str, ...] = ("page",)
    """Modules that define a tuple `ROUTES`."""
    has_filters: bool = False
    """Whether its module `filters` defines `FILTERS` and `GLOBALS` for its templates."""
    in_report: bool = False
    """Whether reports have pages of it: its module `report` defines `collect` and, for scripts, `data`; its template
    `report.html` defines `links` and `pages`; and its script `report.js`, if there is one, defines `mount`."""

    def module(self, name: str) -> ModuleType:
        return import_module(f"stepscope.viewer.{self.folder}.{name}")


CAPABILITIES = (
    Capability("overview", (Section("Overview", "/"),), ("page", "summary"), has_filters=True),
    Capability("steps", (Section("Steps", "/steps", "steps"),), has_filters=True, in_report=True),
    Capability("graphs", (Section("Graphs", "/graphs", "graphs"),), has_filters=True, in_report=True),
    Capability("memory", (Section("Memory", "/memory"),), ("page", "graph_page"), has_filters=True, in_report=True),
    Capability(
        "values",
        (Section("Kernels", "/kernels"), Section("Values", "/values", "value_rows")),
        ("page", "limits_page"),
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
    Capability("compare", (Section("Compare", "/compare"),), has_filters=True, in_report=True),
    Capability("judged", (Section("Judge", "/judge", "judged_launches", least=1),), has_filters=True),
    Capability("ranks", (Section("Ranks", "/ranks", "logs", least=2),), in_report=True),
    Capability("problems", in_report=True),
    Capability("records", (Section("Records", "/records", "records"),)),
    Capability("search", (Section("SQL", "/sql"),)),
    Capability("exports"),
)


def routes() -> Iterator[Route]:
    """Yield every route; a capability is imported only when the iteration reaches it."""
    for capability in CAPABILITIES:
        for name in capability.pages:
            yield from capability.module(name).ROUTES


def pages() -> list[Page]:
    return [route for route in routes() if isinstance(route, Page)]


def twins() -> Iterator[Twin]:
    """Yield every twin, including those without a page."""
    for route in routes():
        if isinstance(route, Twin):
            yield route
        elif isinstance(route, Page):
            yield route.twin


def navigation() -> list[Section]:
    return [section for capability in CAPABILITIES for section in capability.sections]


def filters() -> Iterator[ModuleType]:
    """Return the modules with template filters."""
    return (capability.module("filters") for capability in CAPABILITIES if capability.has_filters)


def in_report() -> list[Capability]:
    """Return the capabilities with pages in a report, in the order of these pages."""
    return [capability for capability in CAPABILITIES if capability.in_report]
