"""PyTorch's debug printer takes every input and argument for a tensor: code with one that is a number does not
compile. What the compiler said of it stands in the logs of the processes that compiled."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

_FAILED = b"C++ compile error"
_CALL = re.compile(rb"aoti_torch_(?:print|save)_tensor_handle\(([\w.]{1,80})")
_ERROR = re.compile(rb"error: .{0,300}AtenTensorHandle()")


def number_for_a_tensor(logs: Iterable[Path]) -> str | None:
    """What a compile failed of because of the printer, and what to do; None: none did."""
    for log in logs:
        try:
            found = _failure(log)
        except OSError:
            continue
        if found is not None:
            what = f"{found[1].decode()}, which is a number," if found[1] else "an input that is a number"
            return (
                f"PyTorch's debug printer did not compile: it takes {what} for a tensor. --aoti launches, which prints"
                " names only, does without it; so does a model whose numbers are constants or tensors."
            )
    return None


def _failure(log: Path) -> re.Match[bytes] | None:
    """Within one record: lines of a payload begin with a tab."""
    found: re.Match[bytes] | None = None
    is_within = False
    with log.open("rb") as file:
        for line in file:
            is_within = _FAILED in line or (is_within and line.startswith(b"\t"))
            told = (_CALL.search(line) or _ERROR.search(line)) if is_within else None
            if told is not None and (found is None or told[1]):
                found = told
            if found is not None and (found[1] or not is_within):
                return found
    return found
