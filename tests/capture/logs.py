"""Reads stepscope logs without the project's own reader."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

RECORD_START = re.compile(rb"(?m)^[VIWEC]\d{4} [^\n]*?\] (?=\{)")


@dataclass(frozen=True)
class LogRecord:
    header: dict[str, Any]
    payload: bytes | None

    @property
    def artifact(self) -> str | None:
        name: str | None = self.header.get("artifact", {}).get("name")
        return name

    def json(self) -> Any:
        assert self.payload is not None
        return json.loads(self.payload)


def read_log(path: Path) -> list[LogRecord]:
    """The records of a log; raises AssertionError where a payload is not the one its header names."""
    data = path.read_bytes()
    starts = [(match.start(), match.end()) for match in RECORD_START.finditer(data)]
    assert not data or starts[0][0] == 0, "the log does not begin with a record"
    records = []
    for (_, json_start), (following, _) in zip(starts, [*starts[1:], (len(data), 0)], strict=True):
        header, _, body = data[json_start:following].partition(b"\n")
        values = json.loads(header)
        payload = None
        if "has_payload" in values:
            payload = body.removesuffix(b"\n").removeprefix(b"\t").replace(b"\n\t", b"\n")
            assert hashlib.md5(payload).hexdigest() == values["has_payload"], values
        records.append(LogRecord(values, payload))
    return records


class Trace:
    """The records of every log of a folder, by kind."""

    def __init__(self, folder: Path) -> None:
        self.paths = sorted(folder.glob("*.log"))
        self.records = [record for path in self.paths for record in read_log(path)]

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [record.json() for record in self.records if record.artifact == f"stepscope_{kind}"]

    def launches(self) -> Iterator[tuple[int, dict[str, Any], dict[str, Any]]]:
        """(step, graph, launch site) of each launch, in the order in which the calls ended."""
        graphs = {graph["graph"]: graph for graph in self.of("graph")}
        for batch in self.of("launches"):
            row, calls = 0, batch["calls"]
            for graph, step, count in zip(calls["graph"], calls["step"], calls["launches"], strict=True):
                for site in batch["site"][row : row + count]:
                    yield step, graphs[graph], graphs[graph]["sites"][site]
                row += count
            assert row == len(batch["site"]) == len(batch["start_ns"]) == len(batch["end_ns"])

    def kernels_by_step(self) -> list[Counter[str]]:
        """Kernel -> launches, for each step; subgraph calls and copies launch no kernel of the wrapper."""
        found: dict[int, Counter[str]] = {}
        for step, _, site in self.launches():
            if site["kind"] not in ("subgraph", "copy"):
                found.setdefault(step, Counter())[site["kernel"]] += 1
        return [found[step] for step in sorted(found)]
