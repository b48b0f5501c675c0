"""Finds a parameter of an optimizer whose gradient can be looked at. Imports no records, since programs that are not
recorded yet need it, too."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import Parameter


def first_gradient(optimizer: Any) -> tuple[int, int] | None:
    """Return the parameter group, and the position in it, of the first parameter whose gradient can be looked at."""
    for group, parameters in enumerate(optimizer.param_groups):
        for position, one in enumerate(parameters["params"]):
            if type(one) in (Parameter, torch.Tensor) and type(one.grad) is torch.Tensor and _is_plain(one.grad):
                return group, position
    return None


def _is_plain(gradient: Any) -> bool:
    return gradient.layout is torch.strided and not gradient.is_inference()


def parameter_at(optimizer: Any, place: tuple[int, int] | None) -> Any:
    """Return the parameter at a position of a parameter group, or None if there is none."""
    if place is None:
        return None
    group, position = place
    groups = optimizer.param_groups
    parameters = groups[group]["params"] if group < len(groups) else ()
    return parameters[position] if position < len(parameters) else None


def gradient_state(parameter: Any) -> tuple[int, int] | None:
    """Return what changes if a backward pass or the program writes to the gradient; None if there is no gradient."""
    gradient = getattr(parameter, "grad", None)
    return None if gradient is None else (gradient.data_ptr(), gradient._version)
