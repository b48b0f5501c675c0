"""Makes the events of device work as PyTorch's profiler (Kineto) writes them, which Holistic Trace Analysis reads.

Outside of profiled steps only durations are recorded, so the start of a kernel is estimated: when its launch has
returned, or when the work before it on its stream is done. Collectives have a stream of their own; they begin after the
work before them, and work after a wait begins when they are done.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from stepscope.viewer.exports.queries.chrome import DeviceSpan, ProfiledSpan, SiteName
from stepscope.viewer.exports.queries.chrome_devices import Placement

Event = dict[str, Any]
COMPUTE, COMMUNICATION = 7, 20
"""Numbers of the streams, as in traces of the profiler: the default stream, and that of NCCL."""
_STREAMS = {COMPUTE: "stream 7", COMMUNICATION: "stream 20 of collectives"}
_CATEGORIES = {"copy": "gpu_memcpy", "fill": "gpu_memset"}
_NCCL = {
    "all_gather": "AllGather", "all_reduce": "AllReduce", "all_to_all": "SendRecv", "broadcast": "Broadcast",
    "reduce_scatter": "ReduceScatter", "wait_tensor": "Wait",
}  # fmt: skip


class Kernel(NamedTuple):
    """The device work of a launch site, in the words of the profiler."""

    name: str
    category: str
    runtime: str
    """Name of the function of the driver that launches it."""
    device: int
    stream: int
    is_wait: bool


class Work(NamedTuple):
    """A kernel in time, on the monotonic clock of its log."""

    span: DeviceSpan
    kernel: Kernel
    start_ns: int


def kernel_of(site: SiteName, placement: Placement) -> Kernel:
    """Return the device work of a launch site; names tell collectives and copies apart, as those of the profiler do."""
    if site.kind == "collective":
        is_wait = "wait_tensor" in site.kernel
        operator = next((name for part, name in _NCCL.items() if part in site.kernel), "Collective")
        stream = COMPUTE if is_wait else COMMUNICATION
        return Kernel(f"ncclDevKernel_{operator}", "kernel", "cudaLaunchKernel", placement.device, stream, is_wait)
    if site.kind == "copy":
        name = f"Memcpy {_side(placement.reads)}to{_side(placement.writes)}"
        return Kernel(name, "gpu_memcpy", "cudaMemcpyAsync", placement.device, COMPUTE, False)
    return Kernel(site.kernel, "kernel", "cudaLaunchKernel", placement.device, COMPUTE, False)


def _side(devices: list[str]) -> str:
    return "H" if devices and all(device == "cpu" for device in devices) else "D"


def on_streams(spans: Iterator[DeviceSpan], kernels: dict[int, Kernel]) -> Iterator[Work]:
    """Yield the device work of `kernels` with its estimated start, in order on each stream."""
    free: dict[tuple[int, int], int] = {}
    for span in spans:
        kernel = kernels.get(span.site)
        if kernel is None:
            continue
        place, after = (kernel.device, kernel.stream), (kernel.device, COMPUTE)
        launched_ns = span.host_start_ns if span.is_replayed else span.host_end_ns
        start_ns = max(launched_ns, free.get(place, launched_ns), free.get(after, launched_ns))
        free[place] = start_ns + span.duration_ns
        if kernel.is_wait:
            free[place] = max(free[place], free.get((kernel.device, COMMUNICATION), free[place]))
        yield Work(span, kernel, start_ns)


def on_host(spans: Iterator[DeviceSpan], kernels: dict[int, Kernel]) -> Iterator[tuple[DeviceSpan, int]]:
    """Yield timed launches that did not run on a GPU, with their estimated start on a row of each thread."""
    free: dict[int, int] = {}
    for span in spans:
        if span.site not in kernels:
            start_ns = max(free.get(span.thread, span.host_start_ns), span.host_start_ns)
            free[span.thread] = start_ns + span.duration_ns
            yield span, start_ns


def correlation(launch: int | None, call: int) -> int:
    """Return the number that connects a kernel with its launch, or the kernels of a CUDA graph with its replay."""
    return 2 * call + 1 if launch is None else 2 * launch + 2


def arguments(work: Work) -> Event:
    span, kernel = work.span, work.kernel
    number = correlation(None if span.is_replayed else span.launch, span.call)
    return {
        "External id": number, "device": kernel.device, "context": 1, "stream": kernel.stream, "correlation": number,
    }  # fmt: skip


def profiled_category(span: ProfiledSpan) -> str:
    return _CATEGORIES.get(span.kind, "kernel")


def profiled_arguments(span: ProfiledSpan) -> Event:
    """Return the arguments of work that the profiler saw; work outside of recorded launches has no correlation."""
    place = {"device": span.device, "context": 1, "stream": span.stream}
    if span.call is None or (span.launch is None and not span.is_replayed):
        return place
    number = correlation(None if span.is_replayed else span.launch, span.call)
    return {**place, "External id": number, "correlation": number}


def streams(kernels: dict[int, Kernel], profiled: list[tuple[int, int]]) -> list[tuple[int, int, str]]:
    """Return (device, stream, title) of the rows of device work; in those that are `profiled`, starts are known."""
    estimated = {(kernel.device, kernel.stream) for kernel in kernels.values()}
    found = []
    for place in sorted(estimated | set(profiled)):
        device, stream = place
        title = _STREAMS.get(stream, f"stream {stream}") if place in estimated else f"stream {stream}"
        if place in estimated:
            title += " (starts estimated outside of profiled steps)" if profiled else " (starts estimated)"
        found.append((device, stream, title))
    return found
