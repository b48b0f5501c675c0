"""Custom operators whose results nothing uses, as Dynamo's graph tells them."""

from __future__ import annotations

import time

import pytest

from stepscope.viewer.graphs.queries.left_out_operators import without_results

BEGIN = """
class GraphModule(torch.nn.Module):
    def forward(self, L_x_: "f32[8][1]cpu", L_cache_: "f32[8][1]cpu"):
        l_x_ = L_x_
        l_cache_ = L_cache_

        # File: /src/model.py:31 in f, code: buf = torch.empty_like(x)
        buf: "f32[8][1]cpu" = torch.empty_like(l_x_)

        # File: /src/model.py:32 in f, code: fill(x, buf)
"""
DEAD = "        fill = torch.ops.mine.fill.default(l_x_, buf);  buf = fill = None\n"


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        ("        fill = torch.ops.mine.fill.default(l_x_, l_cache_);  fill = None\n", ["mine.fill"]),
        (DEAD, []),
        (DEAD.replace("buf = ", "") + "        return (buf,)\n", ["mine.fill"]),
        ('        y: "f32[8][1]cpu" = torch.ops.mine.fill.default(l_x_);  y = None\n', []),
        ("        y = torch.ops.mine.fill.default(l_x_)\n        one = y[0]\n", []),
        ("        y = torch.ops.aten.fill.default(l_x_);  y = None\n", []),
    ],
)
def test_operators_without_a_result_that_is_used(lines: str, found: list[str]) -> None:
    operators = without_results(BEGIN + lines)
    assert [operator for operator, _ in operators] == found
    assert all(line is not None and line.line == 32 for _, line in operators)


def test_a_graph_of_many_operators_is_read_in_linear_time() -> None:
    lines = [f"        fill_{n} = torch.ops.mine.fill.default(l_x_);  fill_{n} = None\n" for n in range(20_000)]
    began = time.process_time()
    assert len(without_results(BEGIN + "".join(lines))) == 1
    assert time.process_time() - began < 5


def test_a_comment_of_many_places_is_read_in_linear_time() -> None:
    began = time.process_time()
    assert without_results(f"torch.ops.\n# File: {'a:1 in ' * 100_000}") == []
    assert time.process_time() - began < 5
