# ruff: noqa: B905, F821, T201
# stepscope: what the log says

# ---- bench -----------------------------------------------------------------------------------------------------------


def bench(run, storages, runs):
    """Print the median and spread of `runs` launches; before each, caches are cleared and arguments restored."""
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
    """Return twice the size of the last cache, at least 64 MB on a CPU and 256 MB on CUDA, as Inductor does."""
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
    """Return the device time of each launch in microseconds. `prepare` runs `lead` operations before each."""
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
            f"The profiler recorded {len(events)} device operations in {runs} runs, not the same number in each."
        )
    groups = (events[n * each + lead : (n + 1) * each] for n in range(runs))
    return [sum(event.time_range.elapsed_us() for event in group) for group in groups]


# ---- the run ---------------------------------------------------------------------------------------------------------


def main():
    parser = argparse.ArgumentParser(description=f"Run {SPEC['kernel']} again and compare the results.")
    parser.add_argument("--bench", action="store_true", help="time the launch too")
    parser.add_argument("--runs", type=int, default=50, help="number of launches that --bench times, at least 30")
    parser.add_argument("--import", dest="modules", action="append", default=[], metavar="MODULE",
                        help="module to import first, such as one that registers a custom operator")  # fmt: skip
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
    wrong = judge(results)
    if options.bench:
        bench(lambda: launch(kernel, arguments, stream), storages, max(options.runs, 30))
    return verdict(differences, judged, wrong)


def judge(results):
    """Print the worst elements of results that were judged wrong. Return whether each is wrong here too, or None."""
    found = []
    for row in SPEC["wrong"]:
        tensor = result_of(results, row)
        if tensor is None or list(tensor.shape) != row["size"] or row["float64"] is None:
            continue
        here = tensor[tuple(row["index"])].item()
        allowed = row["allowed"] or 0
        found.append(not abs(here - row["float64"]) <= allowed)
        recorded = "not finite" if row["compiled"] is None else f"{row['compiled']:.9g}"
        print(f"{row['name']}{row['index']}: {here:.9g} here, {recorded} recorded;")
        print(f"  float64 computes {row['float64']:.9g} from the same inputs, and an error of {allowed:.3g} is allowed")
    return all(found) if found else None


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
    """Return whether an error is of the exception type in `died_of` or has its text of a device error."""
    kind, _, text = died_of.partition(": ")
    device = text if kind == "CUDA error" else died_of.partition(" (")[2].rstrip(")")
    return type(error).__name__ == kind.rpartition(".")[2] or bool(device and device in str(error))


def told(error):
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}"


def pinned(kernel, config):
    """Return the kernel with the configuration that the program ran. If it is not available, it is tuned anew."""
    if not config:
        return kernel
    found = None
    try:
        if not kernel.launchers:
            kernel.precompile()
        found = next((launcher for launcher in kernel.launchers if has(launcher.config, config)), None)
        found = found or built(kernel, dict(config))
        found.config.found_by_coordesc = found.config.found_by_combo_autotune = True  # prevents more tuning
        kernel.launchers = [found]
    except Exception:  # another version of PyTorch or another device
        found = None
    missing = "" if found else "; it is not available here, so the kernel is tuned anew"
    print(f"configuration of the program: {config}{missing}")
    return kernel


def built(kernel, config):
    """Compile a configuration that is no candidate here, such as one that coordinate descent found."""
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


def verdict(differences, judged, wrong):
    how = "" if SPEC["exact"] else " in what made-up arguments can show (numel; whether there are NaN and infinities)"
    if SPEC["did_not_return"]:
        print("verdict: differs: the launch returned here")
        return 1
    if wrong is not None and SPEC["exact"]:
        print("verdict: wrong in the same way" if wrong else "verdict: differs: the results are right here")
        return 0 if wrong else 1
    if not judged:
        print("verdict: it ran; the log has no statistics of its results (record with --level values)")
        return 1
    if differences:
        print(f"verdict: differs in {', '.join(differences)}")
        return 1
    print(f"verdict: same{how}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
