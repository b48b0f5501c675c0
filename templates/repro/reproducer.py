# ruff: noqa: B905, F401, F821, T201
# stepscope: what the log says

import argparse
import base64
import hashlib
import importlib
import io
import math
import os
import re
import statistics
import sys
import time
from pathlib import Path

os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # no pool of processes for one kernel

import torch

SEED = 0
MOST_DRAWN = 1 << 20
COUNTS = ("numel", "nan", "+inf", "-inf", "zero")
MEASURES = ("min", "max", "mean", "std", "l2")
NONFINITE = {"nan": math.nan, "+inf": math.inf, "-inf": -math.inf}
# Relative to the larger of the number itself and the root mean square of the elements.
TOLERANCE = {"float16": 2e-3, "bfloat16": 2e-2, "float32": 1e-4, "float64": 1e-5, "complex64": 1e-4}
COARSEST = 0.1  # 8 bits


class CannotRun(Exception):
    """Says in one sentence why the launch cannot run here."""


def dtype_of(name):
    return getattr(torch, name)


def is_float(dtype):
    return dtype.is_floating_point or dtype.is_complex


# ---- arguments -------------------------------------------------------------------------------------------------------


def device_of(name):
    """Return the recorded device, or the first CUDA device if this machine has fewer."""
    device = torch.device(name)
    if device.type == "cuda":
        if not torch.cuda.is_available():
            raise CannotRun("This launch ran on a CUDA device, and torch finds none here.")
        if (device.index or 0) >= torch.cuda.device_count():
            return torch.device("cuda", 0)
    return device


def source_here(source):
    """Return Triton source whose metadata name a device of this machine, the first one if there are fewer."""
    count = torch.cuda.device_count()
    named = re.compile(r"(DeviceProperties\(type='cuda', index=)(\d+)")
    return named.sub(lambda found: found[0] if int(found[2]) < count else f"{found[1]}0", source)


def make_arguments():
    """Return the arguments as the launch found them, and their storages. A list of tensors stays a list."""
    storages = []
    for storage in SPEC["storages"]:
        fill = 255 if storage["uninitialised"] else 0  # all bits set is NaN
        storages.append(torch.full((storage["bytes"],), fill, dtype=torch.uint8, device=device_of(storage["device"])))
    arguments = []
    for argument in SPEC["arguments"]:
        tensors = [place(tensor, storages) for tensor in argument["tensors"]]
        arguments.append(tensors if argument["is_list"] else tensors[0])
    fill_all(arguments)
    return arguments, storages


def place(spec, storages):
    """Return a tensor on its storage with the recorded size, stride and offset."""
    bare = torch.empty(0, dtype=dtype_of(spec["dtype"]), device=storages[spec["storage"]].device)
    return bare.set_(storages[spec["storage"]].untyped_storage(), spec["offset"], spec["size"], spec["stride"])


def fill_all(arguments):
    """Fill the arguments, with saved values last: they stay where memory is shared with made-up values."""
    flat = [
        (tensor, spec)
        for argument, described in zip(arguments, SPEC["arguments"])
        for tensor, spec in zip(argument if described["is_list"] else [argument], described["tensors"])
        if tensor.numel()
    ]
    for seed, (tensor, spec) in enumerate(flat, SEED):
        if spec["saved"] is None and spec["before"]:
            write(tensor, regenerated(tensor, spec["before"], seed))
        elif spec["saved"] is None and spec["free"] and is_float(tensor.dtype):
            torch.manual_seed(seed)
            write(tensor, torch.randn(tensor.shape, dtype=torch.float32).to(tensor.dtype))
    for tensor, spec in flat:
        if spec["saved"] is not None:
            write(tensor, saved_tensor(spec["saved"]))


def write(tensor, values):
    """Copy `values` into `tensor`, whose expanded dimensions have one element."""
    index = tuple(slice(0, 1) if stride == 0 else slice(None) for stride in tensor.stride())
    tensor[index].copy_(values[index])


def saved_tensor(saved):
    """Return a tensor as it was saved. The digest of its file is checked before it is loaded."""
    if saved["file"] is None:
        data = base64.b64decode(SAVED[saved["sha256"]])
    else:
        path = Path(__file__).resolve().parent.joinpath(*saved["file"])
        try:
            data = path.read_bytes()
        except OSError as error:
            raise CannotRun(f"{path} belongs beside this script: {error.strerror}.") from None
    if hashlib.sha256(data).hexdigest() != saved["sha256"]:
        raise CannotRun(f"{saved['file'] or 'A tensor in this script'} is not what was saved: its sha256 differs.")
    return torch.load(io.BytesIO(data), weights_only=True)


def regenerated(tensor, rows, seed):
    """Return values for `tensor` that have the recorded statistics, drawn from a fixed seed."""
    torch.manual_seed(seed)
    if tensor.dtype.is_complex:
        parts = {row["part"]: drawn(tensor.numel(), row, False) for row in rows}
        zeros = torch.zeros(tensor.numel(), dtype=torch.float64)
        values = torch.complex(parts.get("real", zeros), parts.get("imag", zeros))
    elif tensor.dtype == torch.bool:
        return drawn(tensor.numel(), rows[0], True).reshape(tensor.shape) != 0
    else:
        values = drawn(tensor.numel(), rows[0], not is_float(tensor.dtype))
    return values.reshape(tensor.shape).to(tensor.dtype)


def drawn(numel, row, whole):
    """Return `numel` numbers with as many NaN, infinities and zeros as were recorded.

    NaN and infinities begin at the recorded first index of them.
    """
    scale = numel / max(row["looked_at"], 1)  # above 1 if the statistics are those of a sample
    first = row["first_bad"] if row["first_bad"] is not None and row["looked_at"] == numel else 0
    bad = [torch.full((round((row[name] or 0) * scale),), value) for name, value in NONFINITE.items()]
    bad = torch.cat(bad)[: numel - first]
    count = numel - len(bad)
    zeros = min(round((row["zero"] or 0) * scale), count)
    others = finite(count - zeros, count, row, whole)
    ordered = torch.cat([others, torch.zeros(zeros, dtype=others.dtype)])[shuffled(count)]
    if not len(bad):
        return ordered
    at = torch.cat([torch.tensor([first]), first + 1 + shuffled(numel - first - 1)[: len(bad) - 1]])
    values = torch.empty(numel, dtype=torch.float64)
    is_free = torch.ones(numel, dtype=torch.bool)
    is_free[at] = False
    values[is_free], values[at] = ordered.double(), bad.double()
    return values


def shuffled(count):
    """Return a random order of `count` values. Very many stay in order, since they are random already."""
    return torch.randperm(count) if count <= 1 << 27 else torch.arange(count)


def finite(count, with_zeros, row, whole):
    """Return `count` numbers other than zero. Together with the zeros they have the recorded mean and deviation.

    The recorded minimum and maximum are among them; the others are drawn from a beta distribution between the two.
    """
    low, high = row["min"], row["max"]
    dtype = torch.int64 if whole else torch.float64
    if low is None or high is None or low == high or count == 0:
        return torch.full((count,), low or 0, dtype=dtype)
    ends = [end for end in (low, high) if end != 0][:count]
    mean = (low + high) / 2 if row["mean"] is None else row["mean"]
    squares = (with_zeros - 1) * (row["std"] or 0.0) ** 2 + with_zeros * mean**2 - sum(end**2 for end in ends)
    inner = count - len(ends)
    centre = (with_zeros * mean - sum(ends)) / max(inner, 1)
    variance = squares / max(inner, 1) - centre**2
    values = low + (high - low) * between(inner, (centre - low) / (high - low), variance / (high - low) ** 2)
    if whole:
        values = values.round_().clamp_(float(low), float(high)).to(dtype)
        values[values == 0] = 1 if high >= 1 else -1
    return torch.cat([torch.tensor(ends, dtype=dtype), values])


def between(count, mean, variance):
    """Return `count` numbers in [0, 1] with about this mean and variance."""
    mean = min(max(mean, 1e-6), 1 - 1e-6)
    variance = min(max(variance, 1e-12), mean * (1 - mean) * (1 - 1e-6))
    size = torch.tensor(mean * (1 - mean) / variance - 1, dtype=torch.float64)
    some = torch.distributions.Beta(mean * size, (1 - mean) * size).sample((min(count, MOST_DRAWN),))
    for _ in range(20 if count > 1 else 0):
        deviation = float(some.std(correction=0))
        some = ((some - some.mean()) * (variance**0.5 / deviation if deviation > 0 else 1.0) + mean).clamp_(0, 1)
    return some.repeat(-(-count // len(some)))[:count] if count else some


# ---- statistics ------------------------------------------------------------------------------------------------------


def parts_of(tensor):
    if tensor.dtype.is_complex:
        return {"real": torch.view_as_real(tensor)[..., 0], "imag": torch.view_as_real(tensor)[..., 1]}
    return {None: tensor}


def statistics_of(tensor):
    """Return the statistics that the recorder computes: min, max, mean, std and l2 are those of finite elements."""
    tensor = tensor.detach().resolve_conj().resolve_neg() if isinstance(tensor, torch.Tensor) else tensor
    values = tensor.to(torch.float64).flatten()
    finite_ones = values[torch.isfinite(values)]
    n = finite_ones.numel()
    whole = not is_float(tensor.dtype)
    return {
        "numel": values.numel(),
        "nan": int(values.isnan().sum()),
        "+inf": int((values == math.inf).sum()),
        "-inf": int((values == -math.inf).sum()),
        "zero": int((values == 0).sum()),
        "min": (int(tensor.min()) if whole else float(finite_ones.min())) if n else None,
        "max": (int(tensor.max()) if whole else float(finite_ones.max())) if n else None,
        "mean": float(finite_ones.mean()) if n else None,
        "std": float(finite_ones.std()) if n > 1 else None,
        "l2": float(finite_ones.norm()) if n else None,
    }


def compare(results):
    """Print recorded and present statistics. Return what differs, and how many results could be compared."""
    differences, judged, table = [], 0, [("", "", *COUNTS, *MEASURES)]
    for row in SPEC["after"]:
        if row["skipped"] is not None:
            continue
        tensor = result_of(results, row)
        if tensor is None:
            differences.append(f"{row['name']} is not a tensor here")
            continue
        part = parts_of(tensor).get(row["part"])
        if part is None:
            continue
        here = statistics_of(part)
        judged += 1
        table.append((row["name"], "recorded", *map(number, (row[name] for name in (*COUNTS, *MEASURES)))))
        table.append(("", "here", *map(number, (here[name] for name in (*COUNTS, *MEASURES)))))
        differences += [f"{row['name']}.{name}" for name in differing(row, here)]
    if judged:
        widths = [max(len(line[n]) for line in table) for n in range(len(table[0]))]
        for line in table:
            names = [text.ljust(width) for text, width in zip(line[:2], widths)]
            print("  ".join(names + [text.rjust(width) for text, width in zip(line[2:], widths[2:])]).rstrip())
    return differences, judged


def result_of(results, row):
    found = results[row["at"]]
    if row["item"] is not None:
        found = found[row["item"]] if isinstance(found, (list, tuple)) and row["item"] < len(found) else None
    return found if isinstance(found, torch.Tensor) else None


def differing(row, here):
    """Return the names of statistics that differ.

    For a sample, or if arguments were made up, only the kinds of values are compared.
    """
    sampled = row["looked_at"] < row["numel"]
    if SPEC["exact"] and not sampled:
        counts = [name for name in COUNTS[:4] if row[name] != here[name]]
        if abs(row["zero"] - here["zero"]) > max(1, row["numel"] // 1000):
            counts.append("zero")
        return counts + [name for name in MEASURES if not close(row, here, name)]
    wrong = ["numel"] if row["numel"] != here["numel"] else []
    for name in NONFINITE:
        if bool(row[name]) != bool(here[name]) and not (sampled and not row[name]):
            wrong.append(name)
    return wrong


def close(row, here, name):
    before, now = row[name], here[name]
    if before is None or now is None:
        return before == now or name in ("std", "l2")
    if not isinstance(before, float) and name in ("min", "max"):
        return before == now
    finite_ones = max(row["numel"] - row["nan"] - row["+inf"] - row["-inf"], 1)
    scale = max(abs(before), (row["l2"] or 0.0) / math.sqrt(finite_ones))
    default = 1e-5 if row["dtype"].startswith(("int", "uint", "bool")) else COARSEST
    return abs(before - now) <= TOLERANCE.get(row["dtype"], default) * scale


def number(value):
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else f"{value:.6g}"
