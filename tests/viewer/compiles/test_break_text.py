"""The parts of Dynamo's text about a graph break."""

from __future__ import annotations

from stepscope.viewer.compiles.queries.break_text import context_in, explanation_in, hints_in, url_in

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
