"""Builds the graph of a printed model run.

A compiled model is straight-line code, so its launches in order are its launch sites. The rest is inferred: a kernel
wrote the arguments whose statistics changed, or at least one; a buffer that was not printed before was uninitialised
when a kernel wrote it; a buffer with the last statistics of another one reuses the memory of that one. The
printer names a number by its expression in the generated code; each one that is not a constant becomes a symbol.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from stepscope.tracer.aoti.printed_launches import LaunchPrints, ModelRun
from stepscope.tracer.aoti.printer_output import PrintedFile, PrintedScalar, PrintedTensor
from stepscope.tracer.schema.constants import PRINTED_KEY, PRINTER_LEAVES_OUT
from stepscope.tracer.schema.graphs import Argument, Graph, Held, LaunchKind, LaunchSite, Version
from stepscope.tracer.schema.scalars import Assignment, InputSize, Scalar

FUNCTION = "run"
_SIZE = re.compile(r"[su]\d+")
"""A symbol of a dynamic size, or of a size that depends on data."""
_CONSTANT = re.compile(r"(-?\d+)L?")
_LARGEST = 2**63
_Key = tuple[tuple[str, tuple[str, ...]], ...]


def key(run: ModelRun) -> _Key:
    """Return a key that is equal for runs of one graph."""
    return tuple((launch.kernel, launch.arguments) for launch in run.launches)


def continues(known: _Key, cut_off: _Key) -> bool:
    """Return whether `cut_off` may be an incomplete run of the graph `known`, possibly in the middle of a launch."""
    if not cut_off or len(cut_off) > len(known):
        return False
    (kernel, arguments), (whole_kernel, whole) = cut_off[-1], known[len(cut_off) - 1]
    return known[: len(cut_off) - 1] == cut_off[:-1] and kernel == whole_kernel and whole[: len(arguments)] == arguments


def tensor(launch: LaunchPrints, argument: int, moment: str) -> PrintedTensor | None:
    """Return the block of an argument if one was printed, else None."""
    one = launch.at(argument, moment)
    return one if isinstance(one, PrintedTensor) else None


def alike(one: PrintedTensor | None, other: PrintedTensor | None) -> bool:
    """Return whether both blocks are complete and have the same statistics."""
    return one is not None and other is not None and one.whole and other.whole and one.statistics == other.statistics


def _is_finite(one: PrintedTensor) -> bool:
    return all(value is not None and math.isfinite(value) for value in (one.mean, one.min, one.max))


def graph(number: int, run: ModelRun) -> Graph:
    """Return the graph of which `run` is the first run."""
    memory = _Memory(run)
    sites = [_site(position, launch, memory) for position, launch in enumerate(run.launches)]
    sizes = symbols(run)
    return Graph(
        graph=number, wrapper_key=f"{PRINTED_KEY}{number}", compile_id=None, aot_id=None, phase="inference",
        cached=None, dynamic=any(map(_SIZE.fullmatch, sizes)) or None, functions=[FUNCTION], sites=sites, memory=[],
        inputs=_unused(run), symbols=sizes, operands_left_out=PRINTER_LEAVES_OUT,
    )  # fmt: skip


def _unused(run: ModelRun) -> list[str]:
    """Return the inputs of the model that no printed launch names; a launch may read them as views."""
    used = {_buffer(name) for launch in run.launches for name in launch.arguments}
    return [name for name in run.inputs if name not in used]


def _buffer(name: str) -> str:
    return name.removeprefix("copy_arrayref_tensor_to_tensor(").removesuffix(")")


@dataclass(frozen=True)
class _Held:
    """The contents of a name's memory, as far as they were printed."""

    version: Version | None
    """Version of the buffer; None for an input of the model that no launch has used yet."""
    tensor: PrintedTensor | None
    is_input: bool = False


class _Memory:
    def __init__(self, run: ModelRun) -> None:
        self._held = {name: _Held(None, one, True) for name, one in run.inputs.items()}
        self._left: dict[tuple[object, ...], str] = {}
        """Last name whose contents had certain statistics."""

    def of(self, name: str, seen: PrintedTensor | None) -> _Held | None:
        """Return the contents of `name`; None if neither it nor a buffer with the same statistics was printed."""
        if name in self._held or seen is None:
            return self._held.get(name)
        other = self._held.get(self._left.get(seen.statistics, ""))
        return replace(other, is_input=False) if other is not None and alike(other.tensor, seen) else None

    def now(self, name: str, held: _Held) -> None:
        self._held[name] = held
        if held.tensor is not None:
            self._left[held.tensor.statistics] = name


def _site(number: int, launch: LaunchPrints, memory: _Memory) -> LaunchSite:
    names = launch.arguments
    written = _written(launch, memory)
    arguments, after = [], {}
    for position, name in enumerate(names):
        seen = tensor(launch, position, "before")
        held = memory.of(name, seen)
        argument, left = _argument(number, position, name, held, seen, position in written)
        if argument.held == "uninitialised" and seen and not (_is_out(launch, position) or _is_finite(seen)):
            argument = replace(argument, held=None)  # it may be another buffer's memory, which the launch reads
        arguments.append(argument)
        after[name] = replace(left, tensor=tensor(launch, position, "after") or left.tensor)
    for name, left in after.items():
        memory.now(name, left)
    return LaunchSite(
        number, FUNCTION, number + 1, launch.kernel, kind(launch.kernel), arguments, [],
        scalars=scalars(number, launch),
    )  # fmt: skip


def _argument(
    site: int, position: int, name: str, held: _Held | None, seen: PrintedTensor | None, is_written: bool
) -> tuple[Argument, _Held]:
    """Return an argument, and the contents of its memory after the launch."""
    buffer = _buffer(name)
    here, made = Version(site, position, "before"), Version(site, position, "after")
    if held is None and is_written:
        return Argument(name, "out", buffer, None, buffer, "uninitialised" if seen else None), _Held(made, None)
    version = held.version if held and held.version and alike(held.tensor, seen) else here
    what: Held | None = None if held is None else "input" if held.is_input else "written"
    argument = Argument(name, "inout" if is_written else "in", buffer, None, buffer, what, version)
    return argument, _Held(made if is_written else version, seen, bool(held and held.is_input))


def _written(launch: LaunchPrints, memory: _Memory) -> set[int]:
    """Return the positions of the arguments that the launch wrote."""
    before = [tensor(launch, position, "before") for position in range(len(launch.arguments))]
    after = [tensor(launch, position, "after") for position in range(len(launch.arguments))]
    changed = {n for n, (one, other) in enumerate(zip(before, after, strict=True)) if one and other
               and not alike(one, other)}  # fmt: skip
    if launch.arguments and _is_out(launch, 0):
        return changed | {0}
    if changed or not launch.arguments or "::" in launch.kernel:
        return changed
    new = [n for n, name in enumerate(launch.arguments) if memory.of(name, before[n]) is None]
    return {new[-1] if new else 0} if kind(launch.kernel) in ("cpp", "triton") else set()


def _is_out(launch: LaunchPrints, position: int) -> bool:
    """Return whether the argument is only written according to the operator's signature."""
    return position == 0 and launch.kernel.startswith("aoti_torch_") and launch.kernel.endswith("_out")


def kind(kernel: str) -> LaunchKind:
    """Return the kind of a kernel according to its name."""
    if kernel.startswith(("cpp_", "triton_")):
        return "cpp" if kernel.startswith("cpp_") else "triton"
    return "fallback" if "::" in kernel else "extern"


def file(launch: LaunchPrints, argument: int, moment: str) -> PrintedFile | None:
    """Return the saved tensor of an argument if one was printed, else None."""
    one = launch.at(argument, moment)
    return one if isinstance(one, PrintedFile) else None


def scalars(site: int, launch: LaunchPrints) -> list[Scalar]:
    return [_scalar(site, position, launch.kernel, one) for position, one in launch.scalars]


def symbols(run: ModelRun) -> list[str]:
    """Return the distinct symbols of a run in the order in which they were printed."""
    return list(dict.fromkeys(name for name, _, _ in _values(run)))


def assignment(names: list[str], run: ModelRun, sizes: Sequence[InputSize] = ()) -> Assignment | None:
    """Return the values of the symbols in one run, with an entry for each change, or None if there are none.

    `sizes` are symbols that are sizes of the inputs, which are printed.
    """
    found = Assignment([], [], [])
    last: dict[str, int | None] = {}
    for name, launches, value in (*_sizes(run, sizes), *_values(run)):
        if name in names and (name not in last or last[name] != value):
            last[name] = value
            found.symbol.append(names.index(name))
            found.launches.append(launches)
            found.value.append(value)
    return found if found.symbol else None


def _sizes(run: ModelRun, sizes: Sequence[InputSize]) -> Iterator[tuple[str, int, int | None]]:
    for one in sizes:
        size = run.inputs[one.input].size if one.input in run.inputs else None
        if size is not None and one.dimension < len(size):
            yield one.symbol, 0, size[one.dimension]


def _values(run: ModelRun) -> list[tuple[str, int, int | None]]:
    """Return (symbol, number of launches before, value) for each number; values with more than 64 bits are None."""
    return [
        (_symbol(site, position, one), site, one.value if -_LARGEST <= one.value < _LARGEST else None)
        for site, launch in enumerate(run.launches)
        for position, one in launch.scalars
        if not _CONSTANT.fullmatch(one.argument)
    ]


def _scalar(site: int, position: int, kernel: str, one: PrintedScalar) -> Scalar:
    constant = _CONSTANT.fullmatch(one.argument)
    if constant:
        return Scalar(position, None, constant[1], "int64_t")
    name = one.argument.removeprefix(f"{kernel}_")  # the wrapper computes the kernel's `xnumel` into such a variable
    expression = _symbol(site, position, one)
    return Scalar(position, name if name.isidentifier() and name != one.argument else None, expression, "int64_t")


def _symbol(site: int, position: int, one: PrintedScalar) -> str:
    return one.argument if one.argument.isidentifier() else f"argument_{position}_of_site_{site}"
