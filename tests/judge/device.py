"""Judges healthy models on a CUDA device: ``python -m tests.judge.device`` must accuse nothing.

Five models with TF32, scaled dot product attention, autotuned templates and dropout.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import stepscope
from tests.judge.healthy import shown
from tests.judge.models import MODELS
from tests.judge.reading import judged_in


def encoder(dropout: float) -> tuple[nn.Module, tuple[Tensor, ...]]:
    layer = nn.TransformerEncoderLayer(128, 4, 256, dropout=dropout, batch_first=True)
    return nn.Sequential(layer), (torch.randn(4, 64, 128),)


AUTOTUNED = {"max_autotune": True, "max_autotune_gemm_backends": "TRITON"}
CASES: dict[str, tuple[Callable[[], Any], torch.dtype, dict[str, Any], bool]] = {
    "TF32": (MODELS["mlp"], torch.float32, {}, True),
    "attention": (lambda: encoder(0.0), torch.bfloat16, {}, False),
    "dropout": (lambda: encoder(0.1), torch.float16, {}, False),
    "autotuned": (
        MODELS["gated"],
        torch.bfloat16,
        {"max_autotune": True, "max_autotune_gemm_backends": "TRITON"},
        False,
    ),
    "convolution": (MODELS["convolution"], torch.float32, {}, False),
    "mixed": (MODELS["mixed"], torch.float32, {}, False),
    "softmax": (MODELS["attention"], torch.float16, {}, False),
}


def main() -> int:
    accused = 0
    for name, (build, dtype, options, tf32) in CASES.items():
        torch._dynamo.reset()
        torch.manual_seed(0)
        torch.backends.cuda.matmul.allow_tf32 = tf32
        model, inputs = build()
        model = model.cuda().to(dtype)
        inputs = tuple(x.cuda().to(dtype) if x.is_floating_point() else x.cuda() for x in inputs)
        with tempfile.TemporaryDirectory() as folder:
            with stepscope.trace(folder, judge="every:1"):
                run: Any = torch.compile(model, options=options)
                for _ in range(2):
                    loss = run(*inputs).float().square().sum()
                    torch.autograd.backward(loss)
                    stepscope.step()
            found = judged_in(Path(folder))
        wrong = len(found.wrong()) + len(found.suspects()) + len(found.inputs) + len(found.failures)
        accused += wrong
        print(
            f"{name}: judged {found.judged} of {found.launches}, {dict(found.verdicts())}, {wrong} accused", flush=True
        )
        print(f"  {dict(found.reasons())}", *shown(found), sep="\n", flush=True)
    return accused > 0


if __name__ == "__main__":
    sys.exit(main())
