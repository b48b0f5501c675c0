"""The parts of Dynamo's text about a graph break."""

from __future__ import annotations

import pytest

from stepscope.viewer.compiles.queries.break_text import (
    context_in,
    explanation_in,
    explanation_of_names,
    hints_in,
    url_in,
)

TEXT = """Unsupported call
  Explanation: Dynamo cannot trace it,
      not even here.
  Hint: Move it
      out of the function.
\tHint: Or wait.

  Developer debug context: call(x)
      of y

 For more details about this graph break, please visit: https://example.org/gb0001.html
"""


def test_each_part_is_found() -> None:
    assert explanation_in(TEXT) == "Dynamo cannot trace it,\n      not even here."
    assert hints_in(TEXT) == ["Move it\n      out of the function.", "Or wait."]
    assert context_in(TEXT) == "call(x)\n      of y"
    assert url_in(TEXT) == "https://example.org/gb0001.html"
    assert (explanation_in("none"), hints_in("none"), context_in("none"), url_in("none")) == (None, [], None, None)


def test_a_long_text_of_empty_lines_is_read_at_once() -> None:
    text = " \n" * 400_000  # would take minutes if each line were searched from each line before it
    assert (explanation_in(text), hints_in(text), context_in(text)) == (None, [], None)


@pytest.mark.parametrize(
    ("explanation", "code", "expected"),
    [
        ("Dynamo does not trace `Logger.warn`. More.", "y = f(x)", "Dynamo does not trace `Logger.warn`."),
        ("Dynamo does not trace `Logger.warn`.", "log.warn(x)", None),
        ("Dynamo does not support\n tracing `tolist()` there.", "x.tolist()", None),
        (
            "Dynamo does not support\n tracing `tolist()` there.",
            None,
            "Dynamo does not support tracing `tolist()` there.",
        ),
        ("Cannot sort with other keys.", "sorted(x)", None),
    ],
)
def test_an_explanation_that_names_what_the_line_does_not_show(
    explanation: str, code: str | None, expected: str | None
) -> None:
    assert explanation_of_names(f"Unsupported call\n  Explanation: {explanation}\n", code) == expected
