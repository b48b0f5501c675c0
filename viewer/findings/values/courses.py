"""Words for findings about the course of a tensor over steps."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from stepscope.viewer.findings.evidence import MOST_EXAMPLES, open_launch, program_name
from stepscope.viewer.findings.values.describe import number
from stepscope.viewer.findings.values.operations import place, source_line
from stepscope.viewer.graphs.queries.graphs import site_rows
from stepscope.viewer.graphs.queries.program_names import program_names
from stepscope.viewer.graphs.rows import ArgumentRow, SiteRow
from stepscope.viewer.overview.rows import ProofLink
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.values.queries.magnitudes import place_of
from stepscope.viewer.values.queries.nonfinite import LaunchPlace, launch_place
from stepscope.viewer.values.queries.trends import Course


class Subject:
    """The tensor of a course: its site, its name, and its first launch in a step."""

    def __init__(self, trace: Trace, course: Course) -> None:
        self.trace, self.course = trace, course
        self.site: SiteRow = site_rows(trace, [course.site])[0]
        found = [one for one in self.site.arguments if one.argument == course.argument]
        self.argument: ArgumentRow | None = found[0] if found else None

    @property
    def name(self) -> str:
        """Return the name of the tensor in the program and in the graph, as far as they are known."""
        if self.argument is None:
            return f"argument {self.course.argument}"
        return program_name(self.trace, self.site.graph, self.argument.buffer or self.argument.name)

    @property
    def is_parameter(self) -> bool:
        """Return whether the tensor is known to be a parameter of the model."""
        if self.argument is None:
            return False
        known = program_names(self.trace, self.site.graph).get(self.argument.buffer or self.argument.name)
        return known is not None and known.kind == "parameter"

    @property
    def line(self) -> str:
        """Return the line of the model, as in `` (model.py:12)``, or ""."""
        return place(source_line(self.site))

    def place_at(self, position: int) -> LaunchPlace:
        """Return the place of the launch in the step at `position` of the course."""
        return launch_place(self.trace, self.course.launches[position])

    def fields(self, position: int) -> dict[str, Any]:
        """Return the fields of a finding that say where the step at `position` of the course is."""
        course, launch = self.course, self.course.launches[position]
        return {
            "page": f"/steps/{course.steps[position]}?log={course.log}&launch={launch}",
            "links": [open_launch(launch), *self._map(course.steps[position])],
            "rank": self.place_at(position).rank,
            "log": course.log,
            "step": course.steps[position],
            "launch": launch,
            "graph": self.site.graph,
            "kernel": self.site.kernel,
            "argument": self.argument.name if self.argument is not None else None,
            "buffer": self.argument.buffer if self.argument is not None else None,
            "source": source_line(self.site),
        }

    def _map(self, step: int) -> list[ProofLink]:
        """Return the link to the map that shows the tensor beside all others of its kind."""
        course = self.course
        place = place_of(self.trace, course.log, course.site, course.argument)
        if place is None:
            return []
        asked = {"log": course.log, "of": place[0], "statistic": course.statistic}
        asked |= {"site": course.site, "argument": course.argument, "step": step}
        return [ProofLink(f"magnitude of all {place[0]}", f"/magnitudes?{urlencode(asked)}")]


def numbers_text(course: Course, first: int, last: int) -> str:
    """Return numbers of a course like ``0.176, 0.491, 108 in steps 0 to 2``, the last ones if they are many."""
    first = max(first, last + 1 - MOST_EXAMPLES)
    shown = ", ".join(
        number(float(f"{one:.3g}")) if one is not None else "–" for one in course.numbers[first : last + 1]
    )
    return f"{shown} in steps {course.steps[first]} to {course.steps[last]}"


def others_text(count: int, verb: str) -> list[str]:
    """Return a sentence such as ``3 other tensors grew in the same way``, or nothing for none."""
    if count == 0:
        return []
    return [f"{count:,} other {'tensor' if count == 1 else 'tensors'} {verb}"]
