"""What may stand in an address, for /openapi.json: the type and the meaning of each name in a path or behind ``?``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from stepscope.viewer.compiles import page as compiles_page
from stepscope.viewer.compiles.queries import compile_time
from stepscope.viewer.compiles.queries import metrics as compiles_metrics
from stepscope.viewer.memory import page as memory_page
from stepscope.viewer.ranks.queries import sequences
from stepscope.viewer.values import page as values_page
from stepscope.viewer.web.addresses import Twin

Schema = Mapping[str, Any]


def _number(text: str, least: int | None = 0) -> Schema:
    schema = {"type": "integer"} if least is None else {"type": "integer", "minimum": least}
    return {"schema": schema, "description": text}


def _text(text: str) -> Schema:
    return {"schema": {"type": "string"}, "description": text}


def _one_of(values: Sequence[str], text: str) -> Schema:
    return {"schema": {"type": "string", "enum": [*values]}, "description": text}


_KNOWN: Mapping[str, Schema] = {
    "against": {
        "schema": {"type": "string", "pattern": "^[0-9]{1,18}([.][0-9]{1,18})?$"},
        "description": "The graph to compare with, or a graph, a dot and one of its calls.",
    },
    "argument": _number("The argument of a launch site, from 0."),
    "aspect": _one_of([*sequences.BASES], "What ranks are compared in; else the first in which they differ."),
    "attempt": _number("The attempt of a compile, from 0; else the last."),
    "buffer": _text("The buffer's name, with ~ in place of % where it is encoded."),
    "by": _one_of(memory_page.GROUPINGS, "By what buffers that are alive are grouped."),
    "cache": _text("Only lookups in this cache."),
    "call": _number("A call by its id in the index."),
    "case": _one_of(["1"], "Tell upper from lower case."),
    "columns": _text("Metrics to show, with commas between their names."),
    "compile_id": _text("A compile; in a path with _ in place of /, as in 0_0."),
    "device": _text("Only storages of this device."),
    "direction": _one_of(["asc", "desc"], "The order of the rows."),
    "end_ns": _number("The end of the window.", None),
    "findings": _one_of(["all"], "Show all findings, not the first ones only."),
    "first_site": _number("The first launch site of the window."),
    "first_step": _number("The first step of the window."),
    "from": _number("The first scheduler node that the curves show."),
    "graph": _number("A graph by its id in the index."),
    "hide": _text("Curves that are not shown, with commas between their names."),
    "item": _number("The position within a list argument."),
    "kernel": _text("The kernel's name, with ~ in place of % where it is encoded."),
    "kind": _text("Only records of this event, or of this artifact name."),
    "last_site": _number("The last launch site of the window."),
    "last_step": _number("The last step of the window."),
    "launch": _number("A launch by its id in the index."),
    "left": _number("The log on the left side."),
    "line": _number("The line of the payload to show, from 1."),
    "log": _number("A log by its number in the trace, from 0."),
    "moment": _one_of(values_page.MOMENTS, "When the argument was read."),
    "offset": _number("How many rows are passed over."),
    "only": _one_of(["alive"], "Leave the curves out."),
    "order": _one_of(["down"], "Turn the order of the rows round."),
    "part": _text("The part of a tensor, such as real or imag."),
    "pass": _number("The record of a pass of vLLM's."),
    "query": _text("One statement in DuckDB's SQL."),
    "record": _number("A record by its id in the index."),
    "recompute": _number("A mismatch of a recomputation by its id in the index."),
    "regex": _one_of(["1"], "Take the text for a regular expression (RE2)."),
    "right": _number("The log on the right side."),
    "site": _number("A launch site by its id in the index."),
    "snode": _number("The position of a scheduler node, from 0."),
    "sort": _text("The metric by which the rows are sorted, or record, compile_id, frame or kind."),
    "stacks": _number("How many stacks are passed over."),
    "stage": _text("The stage of a compile to show."),
    "start": _number("The record with which a piece of vLLM's begins."),
    "start_ns": _number("The begin of the window.", None),
    "state": _one_of(["hit", "miss", "bypass"], "Only lookups that ended so."),
    "statistic": _one_of(values_page.STATISTICS, "The statistic that the curve shows."),
    "status": _text("Only compiles that ended so."),
    "step": _number("A step by its number in the log, from 0."),
    "subgraph": _text("The subgraph of a graph."),
    "text": _text("Only what holds this text."),
    "to": _number("The last scheduler node that the curves show."),
    "width": _number("Bins of the answer: about one for each pixel.", 1),
}
_OF_PAGES: Mapping[tuple[str, str], Schema] = {
    ("/compile", "sort"): _one_of([*compiles_page.SORTS], "By what compiles are sorted."),
    ("/compile/{compile_id}/provenance", "line"): {
        "schema": {"type": "string", "pattern": f"^{compiles_page.LINE.pattern}$"},
        "description": "The line to mark, as in code-12, post-12 or pre-12.",
    },
    ("/compile-time", "sort"): _one_of(compile_time.SORTS, "By what spans are sorted."),
    ("/draft-export", "kind"): _text("Only failures of this kind."),
    ("/metrics", "kind"): _one_of(compiles_metrics.KINDS, "Only metrics of these compiles."),
}
"""Where a name means something else than elsewhere."""
_NEEDED = {("/curves", "site"), ("/curves", "argument")}


def parameters(twin: Twin) -> list[dict[str, Any]]:
    """Those of one address, as OpenAPI describes them."""
    page = twin.path.removesuffix(".json")
    in_path = re.findall(r"\{(\w+)\}", twin.path)
    places = [*((name, "path") for name in in_path), *((name, "query") for name in twin.query)]
    return [
        {
            "name": name,
            "in": place,
            "required": place == "path" or (page, name) in _NEEDED,
            **_OF_PAGES.get((page, name), _KNOWN[name]),
        }
        for name, place in places
    ]
