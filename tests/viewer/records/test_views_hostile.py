"""Views of records that hold anything at all: nothing raises, nothing becomes markup, all of it can be answered."""

from __future__ import annotations

import time
from functools import cache
from html.parser import HTMLParser
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from jinja2 import Template

from stepscope.viewer.ingest.torch_trace.artifact_kinds import ARTIFACTS
from stepscope.viewer.ingest.torch_trace.event_kinds import EVENTS
from stepscope.viewer.ingest.torch_trace.kinds import kind_of
from stepscope.viewer.records.views.record import Around, Sibling
from stepscope.viewer.records.views.view import view_of
from stepscope.viewer.web.render import environment

EVIL = (
    "<x-evil>",
    "</pre><x-evil>",
    '"><x-evil x="',
    "javascript:alert(1)",
    "https://x.y/<x-evil>",
    "{{7*7}}",
    "\x00\u202e",
)
MARKUP = "".join(EVIL)
FIELDS = (
    "name", "filename", "line", "loc", "stack", "user_stack", "sizes", "symbol", "val", "vr", "source", "sources",
    "expr", "expr_node_id", "result", "result_id", "node_id", "arguments", "argument_ids", "method",
    "symbol_to_sources",
    "frame_locals", "locals", "symbols", "id", "describer_id", "storage", "size", "stride", "dtype", "device", "base",
    "components", "key", "cache_state", "cache_bypass_reason", "cache_status_detailed", "time_saved_ns", "ops",
    "outputs", "estimated_runtime_ns", "shape", "type", "url", "op", "reason", "_reason", "error", "ph", "ts", "dur",
    "args",
    "code", "stack_traces", "graph_execution_order", "preToPost", "start_time", "start_time_us", "fail_type", "co_name",
    "restart_reasons", "dynamo_config", "pytorch_version", "commit", "op_us", "some_bytes", "cache_event_time",
)  # fmt: skip
TEXTS = st.one_of(
    st.sampled_from(EVIL),
    st.text(st.characters(codec="utf-8"), max_size=12),
    st.sampled_from(
        ("TREE_GUARD_MANAGER:\n+- RootGuardManager\n| +- A: b  # c", "0/0: a  # b  # c.py:1 in d", "[[a, b], [c]]")
    ),
)
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**63), 2**64 - 1), st.integers(-2, 9), st.floats(allow_nan=False), TEXTS
)  # fmt: skip
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(FIELDS) | TEXTS, inner, max_size=5),
    max_leaves=20,
)
PAYLOADS = st.none() | TEXTS | VALUES.map(lambda value: orjson.dumps(value).decode())
AROUND = st.builds(
    Around,
    strings=st.dictionaries(st.integers(0, 9), TEXTS, max_size=3),
    siblings=st.lists(
        st.builds(Sibling, st.integers(0, 99), st.sampled_from(sorted(EVENTS)), VALUES), max_size=4
    ),
)  # fmt: skip
NAMES = (*sorted(ARTIFACTS), "f_ORIGINAL_BYTECODE", "x_ITERATIVE_RECOMPUTE_ERROR", "x_fused", "x_post_grad", "vllm_x",
         "vllm_subgraph_0", "optimus_x", "stepscope_x", "nobody_knows", None)  # fmt: skip


class Tags(HTMLParser):
    """What a browser would make of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, list[tuple[str, str | None]]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, attrs))


@cache
def template() -> Template:
    return environment().from_string('{% import "records/views.html" as v %}{{ v.show(view) }}')


def check(view: Any) -> None:
    orjson.dumps(view)
    html = template().render(view=view)
    parser = Tags()
    parser.feed(html)
    for tag, attributes in parser.seen:
        assert tag in ALLOWED, tag
        for name, value in attributes:
            assert name in ("class", "href", "title", "id", "tabindex", "aria-label", "aria-hidden", "open", "rel"), (
                name
            )
            assert name != "href" or (value or "").startswith(("/", "#", "https://", "http://")), value


ALLOWED = frozenset(
    ("p", "dl", "div", "dt", "dd", "h2", "table", "thead", "tbody", "tr", "th", "td", "ul", "ol", "li", "span", "a",
     "code", "pre", "i", "details", "summary")
)  # fmt: skip
BUSY = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.mark.slow
@BUSY
@example("compilation_metrics", {"name": float("inf"), "bytes": float("-inf"), "time_ns": float("nan")}, None, Around())
@given(
    event=st.sampled_from([*sorted(EVENTS), "nobody_knows", "unreadable"]),
    metadata=VALUES,
    payload=PAYLOADS,
    around=AROUND,
)
def test_any_event(event: str, metadata: Any, payload: str | None, around: Around) -> None:
    check(view_of(event, None, None, metadata, payload, around))


@pytest.mark.slow
@BUSY
@given(name=st.sampled_from(NAMES), payload=PAYLOADS, encoding=st.sampled_from(("json", "string", None)))
def test_any_artifact(name: str | None, payload: str | None, encoding: str | None) -> None:
    check(view_of("artifact", name, encoding, {"name": name, "encoding": encoding}, payload))


@pytest.mark.parametrize("event", [*sorted(EVENTS), "nobody_knows"])
def test_markup_in_every_place_of_an_event(event: str) -> None:
    """Every field that views know holds markup, or a list or an object of it."""
    for value in (MARKUP, [MARKUP], {MARKUP: MARKUP}, [{"name": MARKUP, "filename": MARKUP, "line": 1, "loc": MARKUP}]):
        metadata = dict.fromkeys(FIELDS, value) | {
            "id": 1,
            "describer_id": 2,
            "storage": 1,
            "result_id": 4,
            "argument_ids": [5],
        }
        around = Around({0: MARKUP}, [Sibling(3, other, metadata) for other in EVENTS])
        check(view_of(event, None, None, metadata, orjson.dumps(metadata).decode(), around))


@pytest.mark.parametrize("name", NAMES)
def test_markup_in_every_place_of_an_artifact(name: str | None) -> None:
    for value in (MARKUP, [MARKUP], {MARKUP: MARKUP}, [{MARKUP: MARKUP}]):
        check(view_of("artifact", name, "json", {"name": name}, orjson.dumps(dict.fromkeys(FIELDS, value)).decode()))
    check(
        view_of(
            "artifact", name, "string", {"name": name}, f"# File: {MARKUP}:3 in {MARKUP}, code: {MARKUP}\n {MARKUP} = 1"
        )
    )


PILES = {
    "brackets": "[" * 30_000,
    "objects": '{"a":' * 30_000,
    "line ends": "\n" * 30_000,
    "blanks": " " * 50_000 + "x",
    "tree": "\n".join("| " * depth + "+- GuardManager: source=x" for depth in range(600)),
    "one manager": "+- GuardManager: source=" + ", accessed_by=x, type=<y>, tag_safe=(z" * 4_000,
    "comments": "+- A: " + "  # a.py:1 in b" * 10_000,
    "places": " # File: " + ":1 in x" * 20_000,
    "statements": "# File: a:1 in b\n x" + ": a" * 30_000,
    "frames": 'File "' * 20_000,
    "rules": "=" * 19 + "\n" * 20_000,
    "wide": orjson.dumps([{"a": number} for number in range(4_000)]).decode(),
    "deep": '{"ops": ' + "[" * 500 + "]" * 500 + "}",
    "components": orjson.dumps({"components": ["[" + "a" * 40 + "] x: y"] * 5_000}).decode(),
    "huge number": '{"duration_us": 1' + "0" * 400 + "}",
    "infinite": '{"duration_us": 1e999, "x": NaN, "y": -Infinity, "ts": 1e308}',
    "surrogates": '{"a": "\\ud800", "\\udfff": ["\\ud800"]}',
}


DISTINCT: dict[object, tuple[str, str | None]] = {kind_of(event, None).view: (event, None) for event in EVENTS} | {
    kind_of("artifact", name).view: ("artifact", name) for name in NAMES
}
"""One record for each way to read one."""


@pytest.mark.slow
@pytest.mark.parametrize("pile", PILES)
def test_piles_take_no_time(pile: str) -> None:
    """Large texts made to keep patterns busy or to nest without end."""
    for event, name in DISTINCT.values():
        start = time.process_time()
        orjson.dumps(view_of(event, name, "json", {"name": PILES[pile][:1000]}, PILES[pile]))
        assert time.process_time() - start < 3, name or event
    assert template().render(view=view_of("dynamo_cpp_guards_str", None, None, {}, PILES[pile]))


def test_bare_nan_and_infinities_are_shown() -> None:
    payload = '{"name": "x", "ph": "C", "ts": NaN, "args": {"loss": Infinity, "scale": 2.5, "low": -Infinity}}'
    view = view_of("chromium_event", None, None, {}, payload)
    facts = {fact.name: fact.value.text for block in view.blocks if block.type == "facts" for fact in block.facts}
    assert facts["name"] == "x"
    assert facts["scale"] == "2.5"
    raw = view_of("artifact", "somebody's", "json", {"name": "somebody's"}, payload).blocks[0]
    assert raw.type == "code"
    assert "-Infinity" in raw.text
