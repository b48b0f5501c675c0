"""Finds compiles that failed because of PyTorch's debug printer, in the logs of the processes that compiled.

The printer treats every input and argument as a tensor, so that code in which one is a number does not compile.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

_FAILED = b"C++ compile error"
_CALL = re.compile(rb"aoti_torch_(?:print|save)_tensor_handle\(([\w.]{1,80})")
_ERROR = re.compile(rb"error: .{0,300}AtenTensorHandle()")


def number_for_a_tensor(logs: Iterable[Path]) -> str | None:
    """Return why the printer made a compile fail, and what to do, or None if none failed."""
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
    """Find the error of the printer within one record of a compile error; lines of its payload begin with a tab."""
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
