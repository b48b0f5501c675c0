"""Reads logs that PyTorch's DebugMode saved (`DebugMode.save_logs`, torch 2.15, ``torch/utils/_debug_mode``)."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stepscope.viewer.compare.readings import Call, Hash, Reading
from stepscope.viewer.errors import StepscopeError
from stepscope.viewer.graphs.rows import SourceLine
from stepscope.viewer.ingest.lenient_json import loads
from stepscope.viewer.ingest.other_files import DEBUG_MODE

VERSION = 1
_HEAD_BYTES = 4096
_TENSOR = re.compile(r"(?:(\w+)=)?\b(?:t|dt|ft): (\w+)\[([^\]]*)\]")
_IDENTITY = re.compile(r"(?<=[a-z])\$\d+(?=: )")
"""The number of a tensor, which differs from run to run."""
_OUT = re.compile(r"\bout=.*", re.DOTALL)
_FRAME = re.compile(r' *File "([^"\n]*)", line (\d{1,9}), in ([^\n]*)(?:\n {4,}([^\n]*))?')
_INSIDE_TORCH = re.compile(r"/(?:site|dist)-packages/torch/|/torchinductor_[^/]*/|^<")
_ONLY_READ = "in_ptr"
_DTYPES = {
    "b8": "bool", "bf16": "bfloat16", "c32": "complex32", "c64": "complex64", "c128": "complex128", "f16": "float16",
    "f32": "float32", "f64": "float64", "f8e4m3fn": "float8_e4m3fn", "f8e5m2": "float8_e5m2", "i8": "int8",
    "i16": "int16", "i32": "int32", "i64": "int64", "u8": "uint8", "u16": "uint16", "u32": "uint32", "u64": "uint64",
}  # fmt: skip
_NONFINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


@dataclass(frozen=True)
class DebugLog:
    calls: list[Call]
    unreadable: int
    """Entries that are no calls of DebugMode."""


def is_debug_log(path: str) -> bool:
    """Return whether the file begins like a log that DebugMode saved."""
    try:
        with Path(path).open("rb") as file:
            return DEBUG_MODE in file.read(_HEAD_BYTES)
    except (OSError, ValueError):
        return False


def read_debug_log(path: str) -> DebugLog:
    """Read the operators, Triton kernels and redistributions of a log. Raises StepscopeError if it is none."""
    try:
        data = loads(Path(path).read_bytes())
    except OSError as error:
        raise StepscopeError(f"{path} cannot be read: {error.strerror}.") from None
    except ValueError:
        raise StepscopeError(f"{path} is a damaged log of DebugMode: it is not JSON.") from None
    entries = data.get("logs") if isinstance(data, dict) else None
    if not isinstance(entries, list):
        raise StepscopeError(f"{path} is a damaged log of DebugMode: it has no list of calls.")
    if data.get("version") != VERSION:
        raise StepscopeError(
            f"{path} is a log of DebugMode in format {str(data.get('version'))[:20]}; this stepscope reads {VERSION}."
        )
    calls, unreadable = [], 0
    for number, entry in enumerate(entries):
        try:
            call = _call(number, entry)
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
            unreadable += 1
            continue
        if call is not None:
            calls.append(call)
    return DebugLog(calls, unreadable)


def _call(number: int, entry: dict[str, Any]) -> Call | None:
    """Return the call of an entry, or None if it is a mark that computes nothing."""
    kind, source = entry["type"], _source(entry)
    if kind == "op":
        return _operator(number, entry, source)
    if kind == "triton_kernel":
        return _kernel(number, entry, source)
    if kind == "redistribute":
        how = entry.get("transform_info_str") or f"{entry['src_placement_str']} -> {entry['dst_placement_str']}"
        return Call(number, "redistribute_input", f"{entry['arg_str']}, {how}", (), (), source)
    if kind in ("annotate", "output_placement"):
        return None
    raise ValueError(kind)


def _operator(number: int, entry: dict[str, Any], source: SourceLine | None) -> Call:
    log = _value(entry.get("log")) or {}
    arguments = _IDENTITY.sub("", f"{entry['args_str']}{entry['kwargs_str']}")
    inputs, results = _TENSOR.findall(arguments), _TENSOR.findall(_IDENTITY.sub("", entry.get("output_str") or ""))
    read = _readings(inputs, log.get("input_hash"), "argument")
    out = _OUT.search(arguments)
    memory = len(_TENSOR.findall(out[0])) if out else 0
    return Call(
        number, entry["op_name"], arguments, tuple(read[: len(read) - memory]),
        tuple(_readings(results, log.get("hash"), "result")), source,
    )  # fmt: skip


def _kernel(number: int, entry: dict[str, Any], source: SourceLine | None) -> Call:
    before, after = (_value(entry.get(key)) or {} for key in ("pre_hashes", "post_hashes"))
    arguments = _IDENTITY.sub("", entry["kwargs_str"])
    tensors = _TENSOR.findall(arguments)
    only_read = {name for name, *_ in tensors if name.startswith(_ONLY_READ) or before.get(name, ()) == after.get(name)}
    read = [_reading(tensor, tensor[0], before.get(tensor[0])) for tensor in tensors if "out_ptr" not in tensor[0]]
    inout = [_reading(tensor, tensor[0], before.get(tensor[0])) for tensor in tensors if "in_out_ptr" in tensor[0]]
    written = [_reading(tensor, tensor[0], after.get(tensor[0])) for tensor in tensors if tensor[0] not in only_read]
    return Call(number, entry["kernel_name"], arguments, (*read, *inout), tuple(written), source)


def _readings(tensors: Sequence[tuple[str, str, str]], hashes: Any, noun: str) -> list[Reading]:
    """Return the readings of tensors that a text lists, with the leaves of a tree of hashes in the same order."""
    leaves = list(_leaves(hashes))
    width = len(leaves) // len(tensors) if tensors and len(leaves) % len(tensors) == 0 else 0
    return [
        _reading(
            tensor, tensor[0] or (noun if len(tensors) == 1 else f"{noun} {n}"), leaves[n * width : (n + 1) * width]
        )
        for n, tensor in enumerate(tensors)
    ]


def _reading(tensor: tuple[str, str, str], name: str, hashes: Any) -> Reading:
    _, dtype, shape = tensor
    sizes = [int(size) for size in shape.split(",") if size.strip()]
    return Reading(name, _DTYPES.get(dtype, dtype), math.prod(sizes), tuple(_leaves(hashes)))


def _leaves(value: Any) -> Iterator[Hash]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from _leaves(item)
    elif value is not None:
        yield value


def _value(stored: Any) -> Any:
    """Return a value that DebugMode stored with its type. Raises ValueError or KeyError if it is none."""
    if stored is None:
        return None
    kind = stored["type"]
    if kind == "scalar":
        return stored["value"]
    if kind == "nonfinite_float":
        return _NONFINITE[stored["value"]]
    if kind in ("tuple", "list"):
        return [_value(item) for item in stored["items"]]
    if kind == "dict":
        return {key: _value(item) for key, item in stored["items"]}
    raise ValueError(kind)


def _source(entry: dict[str, Any]) -> SourceLine | None:
    """Return the innermost line outside of torch, of the forward pass if the call belongs to a backward pass."""
    text = entry.get("fwd_stack_trace") or entry.get("stack_trace") or ""
    frames = [frame for frame in _FRAME.findall(text) if not _INSIDE_TORCH.search(frame[0])]
    return SourceLine(frames[-1][0], int(frames[-1][1]), frames[-1][2], frames[-1][3].strip()) if frames else None
