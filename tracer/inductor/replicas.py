"""Finds the inputs of a captured graph that DistributedDataParallel keeps alike on several ranks.

The recorder may start after the model was wrapped, so that its wrapper is looked for among all objects.
"""

from __future__ import annotations

import gc
from collections.abc import Mapping
from typing import Any
from weakref import WeakSet

import torch
from torch import distributed

from stepscope.tracer.schema.graphs import ReplicatedParameters

_DRIFTS = "post_localSGD"
"""Beginning of the names of hooks with which ranks differ on purpose between averages of their parameters."""
_known: WeakSet[torch.nn.parallel.DistributedDataParallel] = WeakSet()
"""The wrappers that were found, as long as they live."""


def replicated(module: Any, compile_id: str | None) -> list[ReplicatedParameters]:
    """Return a record for each DistributedDataParallel of which the graph `module` uses parameters."""
    if compile_id is None or not distributed.is_available() or not distributed.is_initialized():
        return []
    inputs = _parameters(module)
    found = [_of(wrapper, inputs, compile_id) for wrapper in _wrappers(inputs)]
    return [record for record in found if record is not None]


def _parameters(module: Any) -> dict[int, str]:
    """Return Dynamo's expressions of the inputs that are parameters, by id; sharded ones are of other classes."""
    found = {}
    for node in module.graph.nodes:
        given = node.meta.get("grapharg") if node.op == "placeholder" else None
        if given is not None and type(given.example) is torch.nn.Parameter:
            name = given.source.name
            found[id(given.example)] = str(name() if callable(name) else name)
    return found


def _wrappers(inputs: Mapping[int, str]) -> list[torch.nn.parallel.DistributedDataParallel]:
    """Return all wrappers. They are searched for only if those that are known lack one of the parameters, because a
    search looks at every object of the program."""
    wrapped = {id(one) for wrapper in _known for one in wrapper.module.parameters()}
    if not inputs.keys() <= wrapped:
        kind = torch.nn.parallel.DistributedDataParallel
        _known.update(one for one in gc.get_objects() if issubclass(type(one), kind))
    return [*_known]


def _of(wrapper: Any, inputs: dict[int, str], compile_id: str) -> ReplicatedParameters | None:
    hooks = getattr(wrapper, "_comm_hooks", ())
    if any(getattr(hook, "__name__", "").startswith(_DRIFTS) for hook, _ in hooks):
        return None
    named = wrapper.module.named_parameters()
    shared = [
        (inputs[id(one)], name) for name, one in named if id(one) in inputs and name not in wrapper.parameters_to_ignore
    ]
    if not shared:
        return None
    ranks = distributed.get_process_group_ranks(wrapper.process_group)
    return ReplicatedParameters(compile_id, [source for source, _ in shared], [name for _, name in shared], ranks)
