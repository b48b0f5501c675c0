"""Compares logs that PyTorch's own DebugMode saved, with each other."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from stepscope.viewer.compare.compare import compare, wanted

debug_mode = pytest.importorskip("torch.utils._debug_mode")


def test_the_changed_constant_is_named(tmp_path: Path) -> None:
    if not hasattr(debug_mode.DebugMode, "save_logs"):
        pytest.skip("this torch cannot save logs of DebugMode")
    torch.manual_seed(0)
    inputs = torch.randn(4, 8), torch.randn(8, 8)
    for name, scale in (("a", 1.5), ("same", 1.5), ("b", 1.5625)):
        hashes = debug_mode.DebugMode.log_tensor_hashes(hash_fn=["norm", "hash_tensor"], hash_inputs=True)
        with debug_mode.DebugMode(record_stack_trace=True, record_ids=True) as mode, hashes:
            torch.nn.functional.layer_norm((inputs[0] @ inputs[1]) * scale, (8,))
        debug_mode.DebugMode.save_logs(mode.logs, tmp_path / f"{name}.json")
    sides = {name: wanted(str(tmp_path / f"{name}.json")) for name in ("a", "same", "b")}
    assert compare(sides["a"], sides["same"]).verdict == "no difference"
    found = compare(sides["a"], sides["b"])
    assert found.verdict == "launch"
    assert found.launches[0].place.kernel == "aten::mul.Tensor"
    assert found.launches[0].place.source is not None
    assert found.launches[0].place.source.file == __file__
    assert [change.lines for change in found.kernels] == [
        [("aten::mul.Tensor(t: f32[4, 8], 1.5)", "aten::mul.Tensor(t: f32[4, 8], 1.5625)")]
    ]
