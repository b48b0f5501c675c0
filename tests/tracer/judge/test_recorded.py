"""The judge in a recorded program: what it names, what it leaves alone, and that it changes nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import stepscope
from tests.judge.reading import judged_in


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
def test_a_context_judges_its_calls_each_time_and_changes_no_result(tmp_path: Path) -> None:
    def model(value: torch.Tensor) -> torch.Tensor:
        return (torch.nn.functional.dropout(value, 0.5).sin() * 3).sum(0)

    compiled: Any = torch.compile(model)
    value = torch.randn(8, 16)
    outputs = []
    with stepscope.trace(tmp_path):
        for is_judged in (False, True, False, True):
            torch.manual_seed(7)
            if is_judged:
                with stepscope.judge() as runs:
                    assert runs
                    outputs.append((compiled(value), torch.rand(3)))
            else:
                outputs.append((compiled(value), torch.rand(3)))
    found = judged_in(tmp_path)
    assert len(found.calls) == 2
    assert all(call["judged"] == call["launches"] - 1 for call in found.calls)  # the seed is drawn, not computed
    assert not found.buffers
    assert not found.inputs
    assert not found.failures
    for result, drawn in outputs[1:]:
        assert torch.equal(result, outputs[0][0])
        assert torch.equal(drawn, outputs[0][1])
