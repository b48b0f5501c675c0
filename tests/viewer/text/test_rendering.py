"""Numbers and source text as the pages show them."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from stepscope.viewer.overview.rows import StepRow
from stepscope.viewer.steps.filters import STRIP_HEIGHT, steps_strip
from stepscope.viewer.text import formats
from stepscope.viewer.text.highlight import LIMIT_CHARS, highlight, language_of
from stepscope.viewer.text.lexing import pieces
from stepscope.viewer.web import addresses, render

CASES = json.loads((Path(__file__).parents[2] / "js" / "core" / "format_cases.json").read_text("utf-8"))


@pytest.mark.parametrize(("value", "expected"), CASES["ns"])
def test_times(value: int | None, expected: str) -> None:
    assert formats.format_ns(value) == expected


@pytest.mark.parametrize(("value", "expected"), CASES["long"])
def test_long_times(value: int, expected: str) -> None:
    assert formats.format_long(value) == expected


@pytest.mark.parametrize(("value", "expected"), CASES["bytes"])
def test_bytes(value: int | None, expected: str) -> None:
    assert formats.format_bytes(value) == expected


@pytest.mark.parametrize(("value", "expected"), CASES["count"])
def test_counts(value: int | None, expected: str) -> None:
    assert formats.format_count(value) == expected


@pytest.mark.parametrize(("value", "expected"), CASES["shape"])
def test_shapes(value: Any, expected: str) -> None:
    assert formats.shape_text(value) == expected


@pytest.mark.parametrize(("place", "expected"), CASES["launch"])
def test_launches(place: list[int | None], expected: str) -> None:
    assert formats.launch_text(*place) == expected


@pytest.mark.parametrize(("value", "noun", "expected"), CASES["plural"])
def test_plurals(value: int, noun: str, expected: str) -> None:
    assert formats.plural(value, noun) == expected


@pytest.mark.parametrize(("value", "expected"), CASES["value"])
def test_values(value: float | None, expected: str) -> None:
    assert formats.format_value(value) == expected


@pytest.mark.parametrize("text", ["inf", "-inf", "nan"])
def test_values_that_are_not_finite(text: str) -> None:
    """JSON has no form for them, so the pages' scripts never see one; the payload of a record may hold one."""
    assert formats.format_value(float(text)) == text


@pytest.mark.parametrize(("name", "expected"), CASES["slug"])
def test_names_in_addresses(name: str, expected: str) -> None:
    assert addresses.slug(name) == expected
    assert addresses.unslug(expected) == name


def test_unknown_is_a_dash_with_its_reason() -> None:
    assert render.ns_html(None, 'the step has no "end"') == (
        '<span class="unknown" title="the step has no &#34;end&#34;" '
        'aria-label="unknown: the step has no &#34;end&#34;">–</span>'
    )


def test_code_is_escaped_and_numbered() -> None:
    html = render.code_html("x = '<b>'\n\ny", "python", "L", 7)
    assert "<b>" not in html
    assert html.count('class="line"') == 3
    assert 'id="L9"' in html


@pytest.mark.parametrize("language", ["python", "cpp", "json", "text"])
def test_highlighting_changes_no_character(language: Any) -> None:
    text = "import x  # <é>\r\n\r\n  '''open\n  {\"a\": [1, 2]}\n\tend"
    lines = highlight(text, language)
    shown = "\n".join("".join(value for _, value in line) for line in lines)
    assert shown == text.replace("\r\n", "\n")


def test_kernels_inside_a_wrapper_are_coloured_as_what_they_are() -> None:
    text = "k = async_compile.cpp_pybinding(['float*'], r'''\nvoid kernel(float* x) {}\n''')\nreturn k"
    lines = highlight(text, "python")
    assert ("k", "void") in lines[1]
    assert ("k", "return") in lines[3]


def test_long_text_is_plain() -> None:
    lines = highlight("x = 1\n" * (LIMIT_CHARS // 6 + 1), "python")
    assert all(len(line) == 1 and line[0][0] == "" for line in lines)


@pytest.mark.parametrize(
    ("event", "name", "encoding", "payload", "expected"),
    [
        ("artifact", "metrics", "json", "[1]", "json"),
        ("compilation_metrics", None, None, '{"a": 1}', "json"),
        ("dynamo_output_graph", None, None, "class GraphModule", "python"),
        ("inductor_output_code", "/tmp/x.py", None, "import torch", "python"),
        ("inductor_output_code", "/tmp/x.cpp", None, "int main", "cpp"),
        ("dynamo_guards", None, None, "TREE_GUARD", "text"),
    ],
)
def test_language_of_a_payload(event: str, name: str | None, encoding: str | None, payload: str, expected: str) -> None:
    assert language_of(event, name, encoding, payload) == expected


def step(number: int, duration_ns: int | None) -> StepRow:
    return StepRow(0, number, "train", "optimizer", 0, duration_ns, duration_ns, 3, 1)


def test_first_step_with_its_compile_does_not_flatten_the_others() -> None:
    strip = steps_strip([step(0, 10_000_000), *(step(n, 1_000) for n in range(1, 6))])
    assert strip is not None
    assert [bar.capped for bar in strip.bars] == [True, *[False] * 5]
    assert strip.bars[1].height == STRIP_HEIGHT / 4
    assert strip.median_ns == 1_000


def test_many_steps_share_bars() -> None:
    strip = steps_strip([step(n, 5_000 if n == 777 else 1_000) for n in range(1_000)])
    assert strip is not None
    assert len(strip.bars) <= 320
    assert any(bar.step.step == 777 for bar in strip.bars)


def test_steps_without_an_end_have_no_strip() -> None:
    assert steps_strip([step(0, None)]) is None


@pytest.mark.parametrize(
    ("value", "name", "expected"),
    [
        (1_234, "launches", "1,234"),
        (65_504.0, "largest", "6.55e+04"),
        (4_000_000, "growth_bytes", "4.0 MB"),
        (1_500, "duration_ns", "1.50 us"),
        (1_773_480_413_000_000_000, "last_record_unix_ns", "2026-03-14 09:26:53 UTC"),
        (14_711, "pid", "14711"),
        ([], "graphs", "–"),
        (None, "x", "–"),
        (True, "x", "yes"),
        ([0, 1], "values", "0, 1"),
        ({"nan": 3}, "out", "nan 3"),
        ("text", "x", "text"),
    ],
)
def test_evidence(value: object, name: str, expected: str) -> None:
    assert formats.evidence_text(value, name) == expected


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("last_record_unix_ns", 1_773_480_413_000_000_000, "last record"),
        ("duration_ns", 1_500, "duration"),
        ("peak_before_bytes", 114_688, "peak before"),
        ("bytes_per_step", 32_768, "bytes per step"),
        ("is_explained", False, "explained"),
        ("has_ring", False, "launch ring"),
        ("expected", 3, "expected position"),
        ("expected", "float32", "expected"),
        ("peak_snode", "op14", "scheduler node of the peak"),
    ],
)
def test_labels_of_evidence_repeat_no_unit(name: str, value: object, expected: str) -> None:
    assert formats.evidence_label(name, value) == expected


@pytest.mark.parametrize(
    ("language", "text", "expected"),
    [
        ("python", "def run(x):  # why", [("k", "def"), ("f", "run"), ("c", "# why")]),
        ("python", "@jit\nx = tl.load(p0, 1.5e-3)", [("d", "@jit"), ("n", "1.5e-3")]),
        ("python", 's = r"a # \\" b" + \'\'\'c\nd\'\'\'', [("s", 'r"a # \\" b"'), ("s", "'''c\nd'''")]),
        ("python", "obj.print(len(x1), None)", [("b", "len"), ("k", "None")]),
        ("cpp", "#include <a>\nfloat x = 0x1Fu;", [("c", "#include <a>"), ("k", "float"), ("n", "0x1Fu")]),
        ("cpp", "a /* b\n */ c; // d", [("c", "/* b\n */"), ("c", "// d")]),
        ("cpp", "auto s = R\"(a\n\")\" + 'c';", [("k", "auto"), ("s", 'R"(a\n")"'), ("s", "'c'")]),
        ("json", '{"a: b": ["c: d", -2e3, true]}', [("f", '"a: b"'), ("s", '"c: d"'), ("n", "-2e3"), ("k", "true")]),
    ],
)  # fmt: skip
def test_pieces_of_a_language(language: str, text: str, expected: list[tuple[str, str]]) -> None:
    found = list(pieces(text, language))
    assert "".join(value for _, value in found) == text
    assert [piece for piece in found if piece[0]] == expected


def test_unclosed_text_takes_no_longer_than_its_length() -> None:
    start = time.process_time()
    for text in ('"' * 200_000, "'''" + "\\" * 200_000, "1" * 200_000, "{" + '"a' * 100_000, " " * 200_000 + "@"):
        for language in ("python", "cpp", "json"):
            assert "".join(value for _, value in pieces(text, language)) == text
    assert time.process_time() - start < 10
