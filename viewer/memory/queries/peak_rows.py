"""Rows about what the peak of a run consists of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from stepscope.viewer.memory.rows import RunPeak

PeakKind = Literal[
    "parameters", "module buffers", "optimizer state", "inputs", "gradients", "saved for the backward pass",
    "recomputed activations", "temporaries", "other results", "unknown inputs",
]  # fmt: skip
PEAK_MEANINGS: dict[PeakKind, str] = {
    "parameters": "parameters that compiled graphs get",
    "module buffers": "buffers of modules, and other tensors that graphs treat like them",
    "optimizer state": "tensors in the state of an optimizer whose step is compiled",
    "inputs": "tensors that the program gave to a compiled graph",
    "gradients": "gradients that backward graphs return or get",
    "saved for the backward pass": "allocated by compiled code and used by a backward graph later",
    "recomputed activations": "computed again by the backward pass for regions of torch.utils.checkpoint",
    "temporaries": "allocated by a call of a graph and freed by the same call",
    "other results": "allocated by compiled code, and alive after the call",
    "unknown inputs": "allocated outside of compiled code; the log does not tell what they are",
}


@dataclass(frozen=True)
class PeakPart:
    kind: PeakKind
    storage_bytes: int
    share: float
    """Its part of the peak."""


@dataclass(frozen=True)
class RecomputedRegion:
    """What the backward pass has computed again of one checkpointed region and still keeps."""

    storage_bytes: int
    sites: list[int]
    """The launch sites that computed it, the largest activation first."""


@dataclass(frozen=True)
class PeakParts:
    """The parts of the peak of one log and device, the largest first; they add up to it."""

    peak: RunPeak
    parts: list[PeakPart]
    recomputed: list[RecomputedRegion]
    """The checkpointed regions whose recomputed activations are alive at the peak, the largest first."""
    checkpointed_regions: int
    """Number of checkpointed regions that the graph of the peak computes again."""
