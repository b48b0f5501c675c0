"""Finds in the source of a kernel what can make its results differ from run to run."""

from __future__ import annotations

import re
from typing import Literal

Cause = Literal["a random number generator", "atomic additions"]
_RANDOM = re.compile(
    r"rand|philox|load_seed|seeds?\b|dropout|bernoulli|multinomial|exponential|cauchy|geometric|poisson|\bnormal"
)
_MAY_BE_RANDOM = re.compile(
    r"attention|_rnn|lstm|\bgru|rrelu|rng|_gamma|dirichlet|binomial|uniform|noise|shuffle|fractional_max|empty|resize"
)
"""Operators that may draw random numbers, depending on their arguments, and those that leave memory as it is."""
# Inductor's Triton kernels say in their metadata whether `atomic_add_found` is true, and its C++ kernels count errors
# of divisions in a `std::atomic<int>`.
_ATOMIC = re.compile(r"(?<!std::)atomic(?!_add_found)|scatter_add|index_add|index_put|put_accumulate")


def may_be_random(text: str) -> bool:
    """Return whether a kernel may use random numbers or leave memory unwritten, by its name, code and operators."""
    return _RANDOM.search(text) is not None or _MAY_BE_RANDOM.search(text) is not None


def causes_in(kernel: str, code: str) -> list[Cause]:
    """Return what a kernel uses, by its name and the code of its body or its call."""
    text = f"{kernel}\n{code}"
    found: list[Cause] = []
    if _RANDOM.search(text):
        found.append("a random number generator")
    if _ATOMIC.search(text):
        found.append("atomic additions")
    return found
