"""Of the lines that a fused kernel computes, the one that is named for a growth has results without bounds."""

from __future__ import annotations

import pytest

from stepscope.viewer.findings.values.exploding_values import growing_line
from stepscope.viewer.graphs.rows import SiteRow, SourceLine

UPDATE = SourceLine("/src/cell.py", 13, "forward", "S = g * S + k * v")


@pytest.mark.parametrize("bounded", ["F.normalize(y, dim=-1)", "torch.tanh(y)", "y.sigmoid()", "self.norm1(y)"])
def test_a_line_whose_results_have_bounds_is_not_named(bounded: str) -> None:
    last = SourceLine("/src/cell.py", 15, "forward", f"return x + self.o({bounded})")
    for stacks in ([[UPDATE], [last]], [[last], [UPDATE]]):
        site = SiteRow(0, 0, 0, "call", 1, "cpp_fused_0", "cpp", None, None, [], [], [], [], [], stacks, [], 1, 1)
        assert growing_line(site) == UPDATE
