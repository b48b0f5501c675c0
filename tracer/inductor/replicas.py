"""Finds the inputs of a captured graph that DistributedDataParallel keeps alike on several ranks.

The recorder may start after the model was wrapped, so that its wrapper is looked for among all objects.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Mapping, Set
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

import torch
from torch import distributed

from stepscope.tracer.schema.graphs import ReplicatedParameters

_DRIFTS = "post_localSGD"
"""Beginning of the names of hooks with which ranks differ on purpose between averages of their parameters."""
_known: WeakSet[torch.nn.parallel.DistributedDataParallel] = WeakSet()
"""The wrappers that were found, as long as they live."""
_numbers: WeakKeyDictionary[torch.nn.parallel.DistributedDataParallel, int] = WeakKeyDictionary()
"""The order in which graphs first used parameters of them, which the ranks share if they run the same program."""


def replicated(module: Any, compile_id: str | None) -> list[ReplicatedParameters]:
    """Return a record for each DistributedDataParallel of which the graph `module` uses parameters."""
    if compile_id is None or not distributed.is_available() or not distributed.is_initialized():
        return []
    inputs = {id(one): expression for expression, one in inputs_of_class(module, torch.nn.Parameter)}
    buffers = {id(one): expression for expression, one in inputs_of_class(module, torch.Tensor)}
    found = [_of(wrapper, inputs, buffers, compile_id) for wrapper in wrappers(inputs.keys())]
    return [record for record in found if record is not None]


def inputs_of_class(module: Any, kind: type) -> Iterator[tuple[str, Any]]:
    """Yield Dynamo's expressions of the inputs of a class, and the inputs; sharded ones are of other classes."""
    for node in module.graph.nodes:
        given = node.meta.get("grapharg") if node.op == "placeholder" else None
        if given is not None and type(given.example) is kind:
            name = given.source.name
            yield str(name() if callable(name) else name), given.example


def wrappers(parameters: Set[int]) -> list[torch.nn.parallel.DistributedDataParallel]:
    """Return all wrappers. They are searched for only if those that are known lack one of the parameters, which are
    given by `id`, because a search looks at every object of the program."""
    wrapped = {id(one) for wrapper in _known for one in wrapper.module.parameters()}
    if not parameters <= wrapped:
        kind = torch.nn.parallel.DistributedDataParallel
        _known.update(one for one in gc.get_objects() if issubclass(type(one), kind))
    return [*_known]


def _of(wrapper: Any, inputs: dict[int, str], buffers: dict[int, str], compile_id: str) -> ReplicatedParameters | None:
    hooks = getattr(wrapper, "_comm_hooks", ())
    if any(getattr(hook, "__name__", "").startswith(_DRIFTS) for hook, _ in hooks):
        return None
    ignored = wrapper.parameters_to_ignore
    shared = _named(wrapper.module.named_parameters(), inputs, ignored)
    if not shared:
        return None
    own = {} if wrapper.broadcast_buffers else _named(wrapper.module.named_buffers(), buffers, ignored)
    ranks = distributed.get_process_group_ranks(wrapper.process_group)
    number = _numbers.setdefault(wrapper, len(_numbers))
    return ReplicatedParameters(compile_id, [*shared], [*shared.values()], ranks, number, [*own], [*own.values()])


def _named(named: Iterable[tuple[str, Any]], inputs: Mapping[int, str], ignored: Iterable[str]) -> dict[str, str]:
    """Return the names in the wrapped module of those that are inputs, by Dynamo's expression."""
    return {inputs[id(one)]: name for name, one in named if id(one) in inputs and name not in ignored}
