"""Watches the weights of which freezing made constants, and records those that change later.

Every frozen graph passes through `freeze` (torch/_inductor/freezing.py). It computes what follows from the weights
alone, so that a weight that changes later has no effect; weights that the frozen graph uses as they are still have one,
and are left out. Writes are seen by the weight's version counter; those that do not count, as through `.data`, when the
recording ends, by a sum.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from importlib import import_module
from time import perf_counter_ns
from typing import Any, Protocol
from weakref import ref

from stepscope.tracer.inductor import compat
from stepscope.tracer.schema.graphs import ChangedFrozenWeight

FREEZER = "torch._inductor.freezing", "freeze"


class FrozenSink(Protocol):
    """The part of the recorder that is used here."""

    def write(self, record: ChangedFrozenWeight) -> None: ...
    def failed(self, where: str, error: BaseException) -> None: ...


@dataclass
class _Frozen:
    compile_id: str | None
    name: str
    weight: ref[Any]
    version: int | None
    total: float

    def is_written(self) -> bool:
        weight = self.weight()
        return weight is not None and self.version is not None and _version(weight) != self.version

    def is_other(self) -> bool:
        weight = self.weight()
        return weight is not None and _total(weight) != self.total


class FrozenWeights:
    """Looks at frozen weights when an outermost call of a graph begins, and when the recording ends."""

    def __init__(self, sink: FrozenSink) -> None:
        self._sink = sink
        self._frozen: list[_Frozen] = []
        """Weights that have not changed yet."""
        self._undo = ExitStack()
        self._is_attached = False

    def attach(self) -> None:
        """Wrap `freeze` if freezing is on; does nothing a second time. Inductor imports the module only later."""
        config: Any = compat.loaded("torch._inductor.config", "freezing")
        if self._is_attached or config is None or not config.freezing:
            return
        module = import_module(FREEZER[0])
        self._is_attached = True
        name, original = FREEZER[1], getattr(module, FREEZER[1])

        @functools.wraps(original)
        def freeze(dynamo_gm: Any, *arguments: Any, **named: Any) -> Any:
            weights = self._weights() if self._is_attached else []
            result = original(dynamo_gm, *arguments, **named)
            self._add(dynamo_gm, weights, result)
            return result

        setattr(module, name, freeze)
        self._undo.callback(setattr, module, name, original)

    def detach(self) -> None:
        """Restore `freeze`, and record the weights that were written unseen."""
        self._undo.close()
        self._is_attached = False
        self._tell([one for one in self._frozen if one.is_written()], perf_counter_ns())
        with compat.without_modes():
            self._tell([one for one in self._frozen if one.is_other()], None)
        self._frozen.clear()

    def after_fork(self) -> None:
        """Forget the parent's weights, which a child may not be able to read."""
        self._frozen.clear()

    def look(self) -> None:
        """Record the weights that were written since the last call."""
        if self._frozen:
            self._tell([one for one in self._frozen if one.is_written()], perf_counter_ns())

    def _weights(self) -> list[Any]:
        import torch

        context = torch._guards.TracingContext.try_get()
        return list((context.params_flat_unwrap_subclasses if context is not None else None) or ())

    def _add(self, dynamo_gm: Any, weights: Sequence[Any], result: tuple[Any, Sequence[int]]) -> None:
        try:
            frozen, kept = result[0], set(result[1])
            names = _names(dynamo_gm)
            with compat.without_modes():
                constants = [one for one in frozen.graph.find_nodes(op="get_attr") if _reads(one)]
                used = {_memory(getattr(frozen, one.target)) for one in constants}
                for n, weight in enumerate(weights):
                    if n not in kept and weight is not None and _memory(weight) not in used:
                        name, version, total = names.get(id(weight), f"weight {n}"), _version(weight), _total(weight)
                        compile_id = compat.current_compile_id()
                        self._frozen.append(_Frozen(compile_id, name, ref(weight), version, total))
        except Exception as error:
            self._sink.failed("frozen weights", error)

    def _tell(self, changed: Sequence[_Frozen], ns: int | None) -> None:
        for one in changed:
            self._frozen.remove(one)
            self._sink.write(ChangedFrozenWeight(one.compile_id, one.name, ns))


def _names(dynamo_gm: Any) -> dict[int, str]:
    """Return the names of a module's weights in the program, by id."""
    original = dynamo_gm.meta.get("dynamo_flat_name_to_original_fqn") or {}
    given = [*dynamo_gm.named_parameters(remove_duplicate=False), *dynamo_gm.named_buffers(remove_duplicate=False)]
    return {id(weight): f"self.{original.get(name, name)}" for name, weight in given}


def _reads(constant: Any) -> bool:
    """Return whether the graph reads a constant; `_mkl_linear` takes the weight only beside its packed copy."""
    return any("_mkl_linear" not in str(user.target) or constant is not user.args[2] for user in constant.users)


def _memory(tensor: Any) -> int | None:
    """Return the address of a tensor's memory; None if it has none of its own."""
    try:
        return int(tensor.untyped_storage().data_ptr())
    except (AttributeError, RuntimeError, NotImplementedError):
        return None


def _version(weight: Any) -> int | None:
    """Return the number of writes to a weight that autograd has counted; None if it does not count them."""
    return int(weight._version) if not weight.is_inference() else None


def _total(weight: Any) -> float:
    import torch

    return float(weight.detach().to(torch.float64).sum())
