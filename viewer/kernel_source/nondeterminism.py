"""Finds in the source of a kernel what can make its results differ from run to run."""

from __future__ import annotations

import re
from typing import Literal

Cause = Literal["a random number generator", "atomic additions"]
_RANDOM = re.compile(
    r"rand|philox|load_seed|seeds?\b|dropout|bernoulli|multinomial|exponential|cauchy|geometric|poisson|\bnormal"
)
_ATOMIC = re.compile(r"atomic|scatter_add|index_add|index_put|put_accumulate")


def causes_in(kernel: str, code: str) -> list[Cause]:
    """Return what a kernel uses, by its name and the code of its body or its call."""
    text = f"{kernel}\n{code}"
    found: list[Cause] = []
    if _RANDOM.search(text):
        found.append("a random number generator")
    if _ATOMIC.search(text):
        found.append("atomic additions")
    return found
