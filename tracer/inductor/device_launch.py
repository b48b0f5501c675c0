"""Starts Triton kernels with little overhead on the host, and finds the stream that they run on.

`kernel[grid](...)` takes 9 to 14 us on the host, the compiled kernel's own `run` 4 us. `run` is not public: where its
signature in a version of Triton differs, `kernel[grid]` is used. Launch hooks of profilers are not called.

======================================  ===================
name                                    seen in
======================================  ===================
torch._C._cuda_getCurrentRawStream      2.11
torch._C._cuda_isCurrentStreamCapturing 2.11
triton CompiledKernel.run, .run.launch, .function, .packed_metadata  3.6
triton CompiledKernel.metadata, .src.signature, .run.*_scratch_size  3.6
======================================  ===================
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple


def raw_stream_of() -> Callable[[int], int]:
    """Return a function that returns the handle of a device's current stream, given the device's index."""
    import torch

    found = getattr(torch._C, "_cuda_getCurrentRawStream", None)
    return found if found is not None else lambda device: int(torch.cuda.current_stream(device).cuda_stream)


def capturing_of() -> Callable[[], bool]:
    """Return a function that returns whether a CUDA graph is being captured on the current stream."""
    import torch

    return getattr(torch._C, "_cuda_isCurrentStreamCapturing", torch.cuda.is_current_stream_capturing)


class Loaded(NamedTuple):
    """A kernel that CUDA's driver can start: its arguments are 64-bit integers, followed by two null pointers."""

    function: int
    """Handle (``CUfunction``)."""
    shared_bytes: int
    threads: int


class Launcher:
    """A Triton kernel whose arguments are integers, compiled for the current device.

    ``launcher.start(programs, 1, 1, stream, *launcher.prefix, *arguments, *launcher.tail)`` starts `programs` programs
    on the current device's `stream`, which must be the current one. `__call__` does the same and takes 1 us more.
    """

    def __init__(self, kernel: Any, constants: dict[str, Any], **options: Any) -> None:
        """Compile and load `kernel`. Raises what Triton raises."""
        self._kernel, self._constants, self._options = kernel, constants, options
        self._takes = len(kernel.arg_names) - len(constants)
        example = [0] * self._takes
        compiled = kernel.warmup(*example, grid=(1,), **constants, **options)
        self.start: Callable[..., Any] = self._slow
        self.prefix: tuple[Any, ...] = ()
        self.tail: tuple[Any, ...] = tuple(constants.values())
        for start, prefix in _direct_ways(compiled):
            try:
                start(0, 1, 1, 0, *prefix, *example, *self.tail)  # a grid of 0 programs only checks the arguments
            except Exception:
                continue
            self.start, self.prefix = start, prefix
            break
        self.loaded = _loaded(compiled)
        """What starts the kernel without Triton; None if it needs more than its arguments."""

    def __call__(self, programs: int, stream: int, *arguments: int) -> None:
        self.start(programs, 1, 1, stream, *self.prefix, *arguments, *self.tail)

    def _slow(self, programs: int, _y: int, _z: int, _stream: int, *arguments: Any) -> None:
        self._kernel[(programs,)](*arguments[: self._takes], **self._constants, **self._options)


def _direct_ways(compiled: Any) -> list[tuple[Callable[..., Any], tuple[Any, ...]]]:
    """Return the functions that start a compiled kernel, fastest first, each with the arguments after the stream.

    The signatures are those of triton/backends/nvidia/driver.py, 3.6, without scratch memory and hooks.
    """
    try:
        run, function, metadata = compiled.run, compiled.function, compiled.packed_metadata
    except AttributeError:
        return []
    ways: list[tuple[Callable[..., Any], tuple[Any, ...]]] = [(run, (function, metadata, None, None, None))]
    flags = getattr(run, "launch_cooperative_grid", None), getattr(run, "launch_pdl", None)
    scratch = getattr(run, "global_scratch_size", 1), getattr(run, "profile_scratch_size", 1)
    if hasattr(run, "launch") and None not in flags and scratch == (0, 0):
        ways.insert(0, (run.launch, (function, *flags, None, None, metadata, None, None, None)))
    return ways


def _loaded(compiled: Any) -> Loaded | None:
    """Return what ``cuLaunchKernel`` needs to start a kernel as triton/backends/nvidia/driver.py, 3.6, does."""
    try:
        run, metadata, kinds = compiled.run, compiled.metadata, set(compiled.src.signature.values())
        needs = run.launch_cooperative_grid, run.launch_pdl, run.global_scratch_size, run.profile_scratch_size
        if kinds - {"i64", "constexpr"} or any(needs) or metadata.num_ctas != 1:
            return None
        return Loaded(int(compiled.function), int(metadata.shared), 32 * int(metadata.num_warps))
    except (AttributeError, TypeError):
        return None
