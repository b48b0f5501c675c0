"""Says which change of the program would avoid the recompiles that a guard causes."""

from __future__ import annotations

import re
from collections.abc import Sequence

from stepscope.viewer.compiles.queries.guard_text import ANOTHER, FREED, KEYS

_SIZE = re.compile(r"^(?P<tensor>.+)\.size\(\)\[(?P<dimension>\d+)\]$")
_STRIDE = re.compile(r"\.stride\(\)\[\d+\]$")
_LENGTH = re.compile(r"^len\((?P<list>.+)\)$")
_QUOTED = re.compile(r"^(['\"]).*\1$", re.DOTALL)
_INTEGER = re.compile(r"^-?\d+$")
_FLOAT = re.compile(r"^-?(?:\d+\.\d*|\.\d+|\d+(?:\.\d*)?e[-+]?\d+|inf|nan)$")
_OF_A_GROUP = re.compile(r"param_groups\[\d+\]\['(lr|betas|momentum)'\]")
_ONCE = "Each {} needs a graph of its own: {} once, before the first call."
_SETTINGS = {
    "num_threads": _ONCE.format("number of threads", "call torch.set_num_threads"),
    "default_dtype": _ONCE.format("default dtype", "call torch.set_default_dtype"),
    "allow_": _ONCE.format("precision of matrix products", "set it"),
}
_ALONE = (
    "A size of 0 or 1 has a graph of its own, also with dynamic shapes; drop_last=True of a DataLoader leaves out a"
    " short last batch."
)
_FIXED = (
    "The function was compiled with dynamic=False, or with torch._dynamo.config.automatic_dynamic_shapes = False, so"
    " that each size needs a graph of its own: without this setting, PyTorch makes a size dynamic once it has changed."
)
_STATE = "Each state of grad mode, autocast and deterministic algorithms needs a graph of its own."


def advice(source: str, values: Sequence[str], guard: str, *, is_static: bool = False) -> str | None:
    """Return one sentence about a guarded expression and its values, or None if nothing is known to help. `is_static`
    says that the program was compiled with dynamic=False.

    The changes are those that the documentation of torch.compile names: dynamic shapes, `mark_dynamic`,
    `torch._dynamo.config.allow_unspec_int_on_nn_module`, and values that are passed as tensors.
    """
    if size := _SIZE.match(source):
        return _FIXED if is_static else _of_size(size["tensor"], size["dimension"], values)
    if _STRIDE.search(source):
        return "Inputs with the same strides, for instance after .contiguous(), need one graph only."
    if length := _LENGTH.match(source):
        return (
            f"Each length of {length['list']} needs a graph of its own. Tensors of one size in a list can be one"
            " tensor, as torch.stack makes, whose size can be dynamic; a dictionary needs the same keys in all calls."
        )
    if "grad_mode" in guard or "GLOBAL_STATE" in guard:
        return next((told for name, told in _SETTINGS.items() if name in guard), _STATE)
    if source == ANOTHER:
        return (
            "Those that are compiled by themselves share one frame and its limit: compile the module or function of the"
            " program that calls them instead."
        )
    if "___check_type_id" in guard or guard.startswith("type("):
        return "Each type of this object needs a graph of its own."
    if source.startswith("requires_grad of "):
        return "Each combination of inputs and parameters that require gradients needs a graph of its own."
    if source.startswith(f"{FREED}___stack"):
        return "Each call makes this object anew, as it does a bound method: avoid the graph break."
    if source.startswith(FREED):
        return (
            f"Code that is compiled for an object goes with it: create {source.removeprefix(FREED)} once, and keep it "
            "for all calls."
        )
    if source.startswith(KEYS):
        return (
            f"{source.removeprefix(KEYS)} needs the same keys in the same order in all calls: pass what differs as"
            " values."
        )
    if not values:
        return None
    return _of_values(source, values)


def _of_size(tensor: str, dimension: str, values: Sequence[str]) -> str:
    if "__self__" in tensor:
        return "Modules of different sizes share the code of this function, and each size needs a graph of its own."
    has_small = not {"0", "1"}.isdisjoint(values)
    if has_small and len({*values}) < 3:
        return _ALONE
    if _is_needed(values):
        return (
            "PyTorch makes a size dynamic once it has changed, unless dynamic=False is set or the function needs the"
            f" number itself: torch._dynamo.mark_dynamic({tensor}, {dimension}) before the first call raises an error"
            " that names what needs it. Inputs that are padded to a few sizes need only a few graphs."
        )
    first, sizes = (
        ("the first call with a size of 2 or more", "such sizes; sizes of 0 and 1 have graphs of their own")
        if has_small
        else ("the first call", "sizes")
    )
    return (
        f"torch._dynamo.mark_dynamic({tensor}, {dimension}) before {first}, or torch.compile(..., dynamic=True),"
        f" compiles one graph for all {sizes}."
    )


def _is_needed(values: Sequence[str]) -> bool:
    """Return whether the code was compiled for more than two values, although Dynamo makes a number dynamic after two
    unless the code needs its value. Numbers of 0 and 1 do not count."""
    return len({*values} - {"0", "1"}) > 2


def _of_values(source: str, values: Sequence[str]) -> str | None:
    if all(_QUOTED.match(value) for value in values):
        return f"{source} is a string, and each string needs a graph of its own: pass only a few different ones."
    if all(_INTEGER.match(value) for value in values):
        if ".size()[" in source:
            return (
                f"{source} is computed from a size, and the compiled code needs the number itself, so that each value"
                " needs a graph of its own: inputs that are padded to a few sizes need only a few."
            )
        if "." in source:
            return (
                f"{source} is an integer attribute of a module, and each value needs a graph of its own: pass an index"
                " or a position as a tensor. If it is only used in arithmetic,"
                " torch._dynamo.config.allow_unspec_int_on_nn_module = True makes it dynamic."
            )
        if _is_needed(values):
            return (
                f"Each value of {source} needs a graph of its own, because the function needs the number itself, as for"
                " the rounds of a loop, or because dynamic shapes are off (dynamic=False)."
            )
        return f"{source} is an integer: torch.compile(..., dynamic=True) makes it dynamic from the first call on."
    if all(_FLOAT.match(value) or _INTEGER.match(value) for value in values):
        if of_a_group := _OF_A_GROUP.search(source):
            return _of_an_optimizer(of_a_group[1])
        if _is_needed(values):
            return (
                f"{source} is a float whose value the compiled code needs, so that each value needs a graph of its own;"
                " a tensor needs no guard."
            )
        return f"{source} is a float: torch.compile(..., dynamic=True) makes it dynamic; a tensor needs no guard."
    return None


def _of_an_optimizer(name: str) -> str:
    if name == "lr":
        return "A learning rate that is a tensor, as by lr=torch.tensor(...), needs no guard."
    return (
        f"Each value of {name} needs a graph of its own. OneCycleLR and CyclicLR change momentum and betas, unless they"
        " are created with cycle_momentum=False."
    )
