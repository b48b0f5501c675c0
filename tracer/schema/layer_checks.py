"""Records of comparisons between the layers of a compile; `stepscope.tracer.schema.records` names them all."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from stepscope.tracer.schema.process_ends import Frame
from stepscope.tracer.schema.record import Record

WhatDiffers = Literal["values", "dtype", "shape", "strides", "alias", "identity", "requires_grad"]


@dataclass(frozen=True)
class TensorDifference:
    """A tensor that differs between two layers."""

    name: str
    """``output 0``, ``input x after the call``, ``gradient of self.weight``."""
    what: WhatDiffers
    """``alias``: whether it shares memory with another tensor; ``identity``: whether it is the same tensor object."""
    text: str
    """The difference as a clause."""
    dtype: str | None = None
    shape: list[int] | None = None
    wrong: int | None = None
    """The number of elements that differ by more than rounding explains."""
    elements: int | None = None
    index: list[int] | None = None
    """The index of the worst element."""
    before: str | None = None
    """The worst element in the first of the two layers, as text: ``0.25``, ``nan``, ``-inf``."""
    after: str | None = None
    float64: str | None = None
    """The worst element if the graph is computed in float64."""
    allowed: float | None = None
    """The error that rounding explains at the worst element; None for integers."""
    before_error: float | None = None
    """The relative error against float64 of the whole tensor, in the 2-norm, in the first layer."""
    after_error: float | None = None
    frame: Frame | None = None
    """The line of the model that computes the tensor."""
    rounding_error: float | None = None
    """The relative error against float64 of the whole tensor, in the 2-norm, that rounding may make: the largest of the
    runs in float64 with rounding errors after each operation."""


@dataclass(frozen=True)
class LayerStep:
    """Two neighbouring layers of a compile, run on the same inputs.

    The layers are ``dynamo`` (the graph that Dynamo captured), ``aot`` (as AOTAutograd made it), ``joint`` (after the
    joint-graph passes), ``post_grad`` (after the post-grad passes) and ``compiled`` (the kernels).
    """

    before: str
    after: str
    verdict: Literal["agrees", "eager_is_off", "differs", "not_compared"]
    """As in `LayerCheck`, of the earlier layer instead of eager mode."""
    text: str
    """What differs, or why the layers were not compared; empty if they agree."""


@dataclass(frozen=True)
class SettingTrial:
    """The graph, compiled once more with a setting of Inductor changed, beside eager mode."""

    name: str
    """The setting, such as ``pattern_matcher``, in `torch._inductor.config`."""
    value: str
    verdict: Literal["removes", "stays", "not_compared"]
    """Whether the difference is gone with the setting."""
    text: str = ""
    """Why it was not compared; else empty."""


@dataclass(frozen=True)
class LayerCheck(Record):
    """A call of a compiled graph that was also computed by an earlier layer of its compile, on copies of its inputs."""

    KIND: ClassVar[str] = "layer_check"
    TABLE: ClassVar[str | None] = "layer_checks"

    compile_id: str | None
    call: int
    """The number of the call among the calls of the graph, from 0."""
    phase: Literal["forward", "backward"]
    before: str
    """The layer that the comparison takes as right: ``eager``, or ``aot`` if Dynamo's graph cannot run twice."""
    after: str
    """The layer that is compared with it: ``compiled``."""
    verdict: Literal["agrees", "eager_is_off", "differs", "not_compared"]
    """``eager_is_off``: float64 agrees with the later layer, and the first one is visibly off. Strides alone may differ
    under ``agrees``; `differences` then has them."""
    why: str | None
    """The reason for which values were not compared, as a clause; None if they were."""
    tensors: int
    """The number of tensors that were compared: outputs and inputs, or gradients."""
    differing: int
    """The number of tensors that differ; `differences` has the first of them."""
    frame: Frame | None
    """The function of the model that Dynamo captured."""
    differences: list[TensorDifference] = field(default_factory=list)
    layers: list[LayerStep] = field(default_factory=list)
    """The layers between eager mode and the kernels, up to the first that differs; empty if they were not compared."""
    nodes: list[str] = field(default_factory=list)
    """The nodes that this layer changed, as lines of a unified diff; the graph itself if there is none before it."""
    settings: list[SettingTrial] = field(default_factory=list)
    """The settings that were tried; empty if the difference does not begin in Inductor."""
    lines: list[Frame] = field(default_factory=list)
    """The lines of the model from which the changed nodes come: first those of nodes that compute something else, then
    those of nodes that are gone or new."""
    change: list[str] = field(default_factory=list)
    """The most telling of the changed nodes, as lines of a diff."""
