"""Reads the judge's records from the logs of a folder."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

KINDS = ("judged_call", "judged_buffer", "clobbered_input", "failure")


@dataclass
class Judged:
    """All verdicts of some logs."""

    calls: list[dict[str, Any]] = field(default_factory=list)
    buffers: list[dict[str, Any]] = field(default_factory=list)
    inputs: list[dict[str, Any]] = field(default_factory=list)
    failures: list[dict[str, Any]] = field(default_factory=list)
    sites: dict[int, list[dict[str, Any]]] = field(default_factory=dict)
    """Launch sites by the number of the graph."""

    def of_step(self, step: int) -> Judged:
        """Return the verdicts of one step."""
        calls, buffers, inputs = (
            [one for one in records if one["step"] == step] for records in (self.calls, self.buffers, self.inputs)
        )
        return Judged(calls, buffers, inputs, self.failures, self.sites)

    @property
    def launches(self) -> int:
        return sum(call["launches"] for call in self.calls)

    @property
    def judged(self) -> int:
        return sum(call["judged"] for call in self.calls)

    def verdicts(self) -> Counter[tuple[str, str | None]]:
        return Counter(pair for call in self.calls for pair in zip(call["verdict"], call["how"], strict=True))

    def reasons(self) -> Counter[str]:
        found: Counter[str] = Counter()
        for call in self.calls:
            found.update(call["not_judged"])
        return found

    def highest(self) -> float:
        """Return the largest share of what is allowed, over the buffers that are ok."""
        pairs = (pair for call in self.calls for pair in zip(call["verdict"], call["of_limit"], strict=True))
        return max((value for verdict, value in pairs if verdict == "ok" and value is not None), default=0.0)

    def wrong(self) -> list[dict[str, Any]]:
        return [one for one in self.buffers if one["verdict"] == "wrong"]

    def suspects(self) -> list[dict[str, Any]]:
        return [one for one in self.buffers if one["verdict"] == "suspect"]

    def kernel(self, record: dict[str, Any]) -> str:
        return str(self.sites[record["graph"]][record["site"]]["kernel"])


def judged_in(folder: Path) -> Judged:
    result = Judged()
    into = {"judged_call": result.calls, "judged_buffer": result.buffers, "clobbered_input": result.inputs}
    into["failure"] = result.failures
    for path in sorted(folder.glob("*.log")):
        lines = path.read_text("utf-8").split("\n")
        for line, payload in pairwise(lines):
            for kind, records in into.items():
                if f'"stepscope_{kind}"' in line:
                    records.append(json.loads(payload))
            if '"stepscope_graph"' in line:
                graph = json.loads(payload)
                result.sites[graph["graph"]] = graph["sites"]
    return result
