"""Activations of checkpointed regions that the backward pass computes again are told from other temporaries."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.nn.functional import gelu
from torch.utils.checkpoint import checkpoint

import stepscope
from stepscope.viewer.memory.queries.peak_parts import peak_parts
from stepscope.viewer.store import sql
from stepscope.viewer.store.open import open_trace

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.slow]  # torch warns of itself while it compiles
BLOCKS, ROWS, WIDTH = 3, 256, 16
_BACKWARD = "SELECT DISTINCT graph FROM calls JOIN graphs USING (graph) WHERE phase = 'backward'"
"""The graph that was called, since those of other tests may still be loaded."""


def block(wide: torch.Tensor, narrow: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return x + gelu(x @ wide) @ narrow


def model(weights: list[torch.Tensor], x: torch.Tensor, again: bool) -> torch.Tensor:
    for wide, narrow in zip(weights[::2], weights[1::2], strict=True):
        x = checkpoint(block, wide, narrow, x, use_reentrant=False) if again else block(wide, narrow, x)
    return x.square().mean()


@pytest.mark.parametrize("compiled_before", [False, True])
def test_regions_of_the_recomputed_activations(
    compiled_before: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    shapes = [(WIDTH, 8 * WIDTH), (8 * WIDTH, WIDTH)] * BLOCKS
    weights = [torch.randn(*shape, requires_grad=True) for shape in shapes]
    compiled = torch.compile(model)
    for again in (True, False):
        torch._dynamo.reset()
        with stepscope.trace(tmp_path) as recorder:
            torch.autograd.backward(compiled(weights, torch.randn(ROWS, WIDTH), again))
        assert recorder.path is not None
        with open_trace(recorder.path) as trace:
            ((graph,),) = sql.rows(trace, _BACKWARD)
            texts = sql.rows(trace, "SELECT recomputed FROM sites WHERE graph = ?", [graph])
            (found,) = peak_parts(trace, 0)
        regions = {region for (text,) in texts for region in sql.json_value(text).values()}
        sizes = {part.kind: part.storage_bytes for part in found.parts}
        assert (len(regions), found.checkpointed_regions) == ((BLOCKS, BLOCKS) if again else (0, 0))
        assert ("recomputed activations" in sizes) == again
        if again:  # the last block's product and its gelu, computed again
            assert sizes["recomputed activations"] >= ROWS * 8 * WIDTH * 4
