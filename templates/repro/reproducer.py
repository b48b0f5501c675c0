# ruff: noqa: B905, F821, T201
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
    """One sentence."""


def dtype_of(name):
    return getattr(torch, name)


def is_float(dtype):
    return dtype.is_floating_point or dtype.is_complex


# ---- arguments -------------------------------------------------------------------------------------------------------


def device_of(name):
    """The recorded device, or the first of its kind where there are fewer here."""
    device = torch.device(name)
    if device.type == "cuda":
        if not torch.cuda.is_available():
            raise CannotRun("This launch ran on a CUDA device, and torch finds none here.")
        if (device.index or 0) >= torch.cuda.device_count():
            return torch.device("cuda", 0)
    return device


def source_here(source):
    """Triton's metadata name the device by number: the first one here where there are fewer."""
    count = torch.cuda.device_count()
    named = re.compile(r"(DeviceProperties\(type='cuda', index=)(\d+)")
    return named.sub(lambda found: found[0] if int(found[2]) < count else f"{found[1]}0", source)


def make_arguments():
    """The arguments on their storages, as the launch found them; a list for an argument that is a list of tensors."""
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
    """A tensor of exact size, stride and offset on its storage."""
    bare = torch.empty(0, dtype=dtype_of(spec["dtype"]), device=storages[spec["storage"]].device)
    return bare.set_(storages[spec["storage"]].untyped_storage(), spec["offset"], spec["size"], spec["stride"])


def fill_all(arguments):
    """What is made up first: where memory is shared, what was saved stays."""
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
    """Of an expanded dimension the one element that it has."""
    index = tuple(slice(0, 1) if stride == 0 else slice(None) for stride in tensor.stride())
    tensor[index].copy_(values[index])


def saved_tensor(saved):
    """The tensor as it was saved. Its file is checked by its digest before it is opened."""
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
    """Values in row-major order that have the recorded statistics, from a fixed seed."""
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
    """`numel` numbers: so many NaN, infinities and zeros as recorded, from the first bad index on, and others."""
    scale = numel / max(row["looked_at"], 1)  # more than 1: the statistics are over a sample
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
    """An order of so many; of very many the plain one, for they are random already."""
    return torch.randperm(count) if count <= 1 << 27 else torch.arange(count)


def finite(count, with_zeros, row, whole):
    """`count` numbers, not zero, that have the recorded mean and deviation with the zeros that come to it.

    The smallest and the largest are among them; those between are drawn from a beta distribution.
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
    """Numbers in [0, 1] of about this mean and variance."""
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
    """As the recorder makes them: min to l2 are over the finite elements."""
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
    """Prints recorded and present statistics; the differences, and how many results could be judged."""
    differences, judged, table = [], 0, [("", "", *COUNTS, *MEASURES)]
    for row in SPEC["after"]:
        if row["skipped"] is not None:
            continue
        tensor = result_of(results, row)
        if tensor is None:
            differences.append(f"{row['name']} is no tensor here")
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
    """Of a sample, or with arguments that were made up, only what kinds of value there are."""
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


# ---- bench -----------------------------------------------------------------------------------------------------------


def bench(run, storages, runs):
    """Median and spread of `runs` launches, caches cleared and arguments restored before each."""
    device = next((s.device for s in storages if s.device.type == "cuda"), torch.device("cpu"))
    written = [n for n, storage in enumerate(SPEC["storages"]) if storage["written"] and storages[n].numel()]
    kept = [storages[n].clone() for n in written]

    def prepare():
        for n, content in zip(written, kept):
            storages[n].copy_(content)
        cache.zero_()

    cache = torch.empty(cache_bytes(device), dtype=torch.uint8, device=device)
    for _ in range(10):
        prepare()
        run()
    if device.type == "cuda":
        times, how = cuda_times(prepare, run, runs, 1 + len(written)), "device time of profiler events"
    else:
        times, how = host_times(prepare, run, runs), "host time around the launch"
    tenths = statistics.quantiles(times, n=10, method="inclusive")
    print(f"\nbench: {len(times)} runs, caches cleared before each, {how}")
    median = statistics.median(times)
    print(f"  median {median:.2f} us   p10 {tenths[0]:.2f} us   p90 {tenths[8]:.2f} us")
    if SPEC["moved_bytes"] and median > 0:
        moved = SPEC["moved_bytes"]
        print(f"  {moved:,} bytes of arguments read and written: {moved / median / 1000:.3g} GB/s at the median")


def cache_bytes(device):
    """Twice the last cache, 256 MB at least on CUDA as Inductor's own benchmarks take, 64 MB on a CPU."""
    if device.type == "cuda":
        return max(256_000_000, 2 * getattr(torch.cuda.get_device_properties(device), "L2_cache_size", 0))
    sizes = [0]
    for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        text = path.read_text().strip()
        if text.endswith("K") and text[:-1].isdigit():
            sizes.append(int(text[:-1]) * 1024)
    return max(64_000_000, 2 * max(sizes))


def host_times(prepare, run, runs):
    times = []
    for _ in range(runs):
        prepare()
        start = time.perf_counter_ns()
        run()
        times.append((time.perf_counter_ns() - start) / 1000)
    return times


def cuda_times(prepare, run, runs, lead):
    """Microseconds that the device works for each launch; `lead` operations of `prepare` come before it."""
    torch.cuda.synchronize()
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        for _ in range(runs):
            prepare()
            run()
        torch.cuda.synchronize()
    cuda = torch.autograd.DeviceType.CUDA
    events = [e for e in profile.events() if e.device_type == cuda and not getattr(e, "is_user_annotation", False)]
    events.sort(key=lambda event: event.time_range.start)
    each = len(events) // runs
    if each * runs != len(events) or each <= lead:
        raise CannotRun(
            f"The profiler saw {len(events)} operations of the device, not the same in each of {runs} runs."
        )
    groups = (events[n * each + lead : (n + 1) * each] for n in range(runs))
    return [sum(event.time_range.elapsed_us() for event in group) for group in groups]


# ---- the run ---------------------------------------------------------------------------------------------------------


def main():
    parser = argparse.ArgumentParser(description=f"Runs {SPEC['kernel']} again and compares.")
    parser.add_argument("--bench", action="store_true", help="time the launch too")
    parser.add_argument("--runs", type=int, default=50, help="of --bench; at least 30")
    parser.add_argument("--import", dest="modules", action="append", default=[], metavar="MODULE",
                        help="import this first: the module that registers a custom operator")  # fmt: skip
    options = parser.parse_args()
    print(f"{SPEC['kernel']}: {SPEC['where']}")
    print(f"recorded with {SPEC['recorded_with']}; here torch {torch.__version__}")
    for note in SPEC["made_up"]:
        print(f"made up: {note}")
    for note in SPEC["notes"]:
        print(f"note: {note}")
    try:
        for name in options.modules:
            importlib.import_module(name)
        return reproduce(options)
    except (CannotRun, ImportError) as error:
        print(f"repro: {error}", file=sys.stderr)
        return 2


def reproduce(options):
    arguments, storages = make_arguments()
    device = next((storage.device for storage in storages if storage.device.type == "cuda"), None)
    if device is not None:
        torch.cuda.set_device(device)
    kernel = kernel_here()
    stream = torch.cuda.current_stream().cuda_stream if device is not None else None
    if SPEC["did_not_return"]:
        print("in the log this launch did not return; if it dies here, it fails the same way", flush=True)
    try:
        bound = launch(kernel, arguments, stream)
        if device is not None:
            torch.cuda.synchronize()
    except Exception as error:
        print(f"the launch raised {told(error)}")
        return failed(error)
    results = [*arguments, *(bound if SPEC["bound"] > 1 else [bound])]
    differences, judged = compare(results)
    if options.bench:
        bench(lambda: launch(kernel, arguments, stream), storages, max(options.runs, 30))
    return verdict(differences, judged)


def failed(error):
    died_of = SPEC["died_of"]
    if not SPEC["did_not_return"]:
        print("verdict: differs: it raises here only")
    elif died_of is not None and not is_like(error, died_of):
        print(f"verdict: differs: it fails here too, and the program died of {died_of}")
    else:
        print("verdict: fails the same way")
        return 0
    return 1


def is_like(error, died_of):
    """Of the type of the exception that is named, or with the text of the device's error."""
    kind, _, text = died_of.partition(": ")
    device = text if kind == "CUDA error" else died_of.partition(" (")[2].rstrip(")")
    return type(error).__name__ == kind.rpartition(".")[2] or bool(device and device in str(error))


def told(error):
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}"


def pinned(kernel, config):
    """With the configuration that the program had, if the kernel has it here; else it is tuned anew."""
    if not config:
        return kernel
    found = None
    try:
        if not kernel.launchers:
            kernel.precompile()
        found = next((launcher for launcher in kernel.launchers if has(launcher.config, config)), None)
        found = found or built(kernel, dict(config))
        found.config.found_by_coordesc = found.config.found_by_combo_autotune = True  # it is not to go on from there
        kernel.launchers = [found]
    except Exception:  # another PyTorch, another device
        found = None
    print(f"configuration of the program: {config}{'' if found else '; the kernel has it not here, and is tuned anew'}")
    return kernel


def built(kernel, config):
    """What is none of the candidates: coordinate descent had found it."""
    import triton

    last = {name: config.pop(name) for name in ("num_warps", "num_stages") if name in config}
    return kernel._precompile_config(triton.Config(config, **last)).make_launcher()


def has(config, wanted):
    known = {**config.kwargs, "num_warps": config.num_warps, "num_stages": config.num_stages}
    return all(known.get(name) == number for name, number in wanted.items())


def kernel_here():
    try:
        return pinned(make_kernel(), SPEC["config"])
    except AttributeError:
        raise CannotRun(f"{SPEC['kernel']} is not registered here: name its module with --import MODULE.") from None
    except Exception as error:
        raise CannotRun(f"The kernel cannot be built here: {told(error)}") from error


def verdict(differences, judged):
    how = "" if SPEC["exact"] else " in what made-up arguments can show (numel; whether there are NaN and infinities)"
    if SPEC["did_not_return"]:
        print("verdict: differs: the launch returned here")
        return 1
    if not judged:
        print("verdict: it ran; the log has no statistics of what it left (record with --level values)")
        return 1
    if differences:
        print(f"verdict: differs in {', '.join(differences)}")
        return 1
    print(f"verdict: same{how}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
