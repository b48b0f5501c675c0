"""Describes the role of single launches in the death of a process, for their panels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from stepscope.viewer.findings.crash import suspects
from stepscope.viewer.findings.crash.crash import title_of
from stepscope.viewer.findings.crash.deaths import Death, deaths
from stepscope.viewer.store.trace import Trace

Part = Literal["died", "in_flight", "last_finished"]


@dataclass(frozen=True)
class LaunchDeath:
    """Role of a launch in the death of its process."""

    part: Part
    """``died``: the launch of the finding; ``in_flight``: another unfinished one; else the last finished one."""
    title: str
    """Title of the finding."""
    sentences: list[str]
    """Sentences about what it reads and writes, with addresses and storages; only for ``died``."""


def launch_deaths(trace: Trace) -> dict[int, LaunchDeath]:
    """Return the launches of the trace that have a role in a death."""
    return trace.once(_find)


def _find(trace: Trace) -> dict[int, LaunchDeath]:
    found: dict[int, LaunchDeath] = {}
    for death in deaths(trace):
        if death.kind != "exception":
            found = {**_beside(death), **found, **_at(trace, death)}
    return found


def _beside(death: Death) -> dict[int, LaunchDeath]:
    parts: list[tuple[Part, int | None]] = [("last_finished", row.launch) for row in death.last_finished]
    parts += [("in_flight", row.launch) for row in death.on_device]
    return {launch: LaunchDeath(part, title_of(death), []) for part, launch in parts if launch is not None}


def _at(trace: Trace, death: Death) -> dict[int, LaunchDeath]:
    if death.blamed is None or (found := suspects.suspect(trace, death.blamed)) is None:
        return {}
    sentences = [
        *(f"in: {text}" for text in suspects.argument_sentences(found, written=False)),
        *(f"out: {text}" for text in suspects.argument_sentences(found, written=True)),
    ]
    sentences += [f"with: {text}" for text in suspects.scalar_sentences(found)]
    inside = suspects.reach_sentence(found)
    sentences += [f"inside: {inside}"] if inside else []
    return {death.blamed: LaunchDeath("died", title_of(death), sentences)}
