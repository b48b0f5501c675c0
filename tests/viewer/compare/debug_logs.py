"""Writes logs as PyTorch's DebugMode saves them (`DebugMode.save_logs`, torch 2.15)."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import orjson


def stored(value: Any) -> Any:
    """Return a value as DebugMode stores it with its type."""
    if isinstance(value, float) and not math.isfinite(value):
        return {"type": "nonfinite_float", "value": str(value)}
    if isinstance(value, (tuple, list)):
        return {"type": type(value).__name__, "items": [stored(item) for item in value]}
    if isinstance(value, dict):
        return {"type": "dict", "items": [[key, stored(item)] for key, item in value.items()]}
    return {"type": "scalar", "value": value}


def operator(
    name: str, arguments: str, result: str = "t: f32[4, 8]", line: int | None = None, **hashes: Any
) -> dict[str, Any]:
    """Return an entry; `hash` is that of the result, and `read` are those of the positional arguments."""
    log: dict[str, Any] = {}
    if "read" in hashes:
        log["input_hash"] = (tuple(hashes["read"]), hashes.get("read_by_name", {}))
    if "hash" in hashes:
        log["hash"] = hashes["hash"]
    frames = [("/src/model.py", line, "forward", "x = step(x)"), ("/v/site-packages/torch/_ops.py", 9, "run", "go()")]
    trace = "".join(f'  File "{file}", line {at}, in {name}\n    {code}\n' for file, at, name, code in frames)
    return {
        **common(), "type": "op", "op_name": name, "args_str": arguments, "kwargs_str": hashes.get("by_name", ""),
        "output_str": f"  ->  {result}", "log": stored(log) if log else None, "stack_trace": trace if line else None,
    }  # fmt: skip


def kernel(name: str, arguments: str, before: dict[str, Any] | None, after: dict[str, Any]) -> dict[str, Any]:
    return {
        **common(), "type": "triton_kernel", "kernel_name": name, "kwargs_str": arguments,
        "pre_hashes": None if before is None else stored(before), "post_hashes": stored(after),
    }  # fmt: skip


def common() -> dict[str, Any]:
    return {"call_depth": 1, "log": None, "output_str": None, "stack_trace": None, "fwd_stack_trace": None}


def write(path: Path, *entries: Any, **changed: Any) -> Path:
    data = {"format": "torch.utils._debug_mode.DebugMode.logs", "version": 1, "logs": list(entries), **changed}
    path.write_bytes(orjson.dumps(data))
    return path
