"""Describes the launch at which a process died: its arguments, their producers, and the addresses of its accesses."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from stepscope.tracer.wrapper.parsed import function_named, parsed
from stepscope.viewer.crash.queries.last_seen import last_seen
from stepscope.viewer.findings.values.describe import describe
from stepscope.viewer.graphs.queries.graphs import wrapper_code
from stepscope.viewer.graphs.queries.kernel_code import cut
from stepscope.viewer.graphs.queries.launches import launch_detail
from stepscope.viewer.graphs.queries.program_names import with_program_names
from stepscope.viewer.graphs.queries.scalars import parameter_numbers
from stepscope.viewer.graphs.rows import ArgumentRow, ScalarRow
from stepscope.viewer.kernel_source.access_bounds import Reach, extent_bytes, reaches, user_reaches
from stepscope.viewer.kernel_source.symbol_sizes import Sizes
from stepscope.viewer.repro.queries import shapes_of_function
from stepscope.viewer.steps.rows import LaunchDetail
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.text.formats import known_name
from stepscope.viewer.values.queries.values import last_of_version
from stepscope.viewer.values.rows import Element, ValueRow

MOST_ARGUMENTS = 16
MOST_UNKNOWN = 3


@dataclass(frozen=True)
class Producer:
    """The last launch that wrote an argument."""

    launch: int
    ordinal: int | None
    """Position in the step, from 1."""
    kernel: str | None


@dataclass(frozen=True)
class Seen:
    """When something was read, relative to the launch."""

    in_call: bool
    """Whether it was read in the call of the launch."""
    step: int | None
    """Number of the step if it is not that of the launch."""

    @property
    def text(self) -> str:
        if self.in_call:
            return ""
        return "in an earlier call" if self.step is None else f"in step {self.step}"


@dataclass(frozen=True)
class SuspectArgument:
    """An argument of the launch, or one tensor of a list."""

    row: ArgumentRow
    tensor: dict[str, Any] | None
    """None if it was never seen at run time or is not a tensor."""
    producer: Producer | None
    values: str | None
    """Description of its values when they were last read."""
    values_seen: Seen | None
    """When its values were read."""
    elements: list[Element] | None
    """All elements then; None if they were not kept or there is not exactly one tensor."""
    tensor_seen: Seen | None
    """When its address, offset and storage were seen. Its dtype, size and stride are those of the launch."""

    @property
    def name(self) -> str:
        item = f"[{self.tensor['item']}]" if self.tensor and self.tensor["item"] is not None else ""
        return known_name((self.row.buffer or self.row.name) + item, self.row.program_name)

    @property
    def needs_bytes(self) -> int | None:
        """Bytes from the begin of the storage to the end of its last element."""
        return extent_bytes(self.tensor) if self.tensor else None


@dataclass(frozen=True)
class Suspect:
    """A launch at which a process may have died."""

    detail: LaunchDetail
    arguments: list[SuspectArgument]
    reaches: list[Reach]
    """Empty if the log lacks the kernel's source or Inductor did not write it."""

    @property
    def producers(self) -> list[Producer]:
        """Producers of its inputs, each once."""
        return list(dict.fromkeys(one.producer for one in self.arguments if one.producer is not None))


def suspect(trace: Trace, launch: int) -> Suspect | None:
    """Return what is known of `launch`, or None if it does not exist."""
    detail = launch_detail(trace, launch)
    if detail is None:
        return None
    (site,) = with_program_names(trace, [detail.site])
    before = {values.argument: values.before for values in detail.values}
    arguments = [one for row in site.arguments for one in _arguments(trace, detail, row, before.get(row.argument, []))]
    held = {
        row.parameter: ends
        for row in detail.site.arguments
        if row.parameter is not None and (ends := _whole_numbers(before.get(row.argument, [])))
    }
    return Suspect(detail, arguments, _reaches(trace, detail, held))


def _arguments(
    trace: Trace, detail: LaunchDetail, row: ArgumentRow, before: Sequence[ValueRow]
) -> list[SuspectArgument]:
    producer = _producer(trace, detail, row)
    values: Sequence[ValueRow] = before
    seen = Seen(True, None)
    if not values and row.role != "out":
        values, step = last_of_version(trace, detail.site.site, row.argument, detail.launch)
        seen = Seen(False, step if step != detail.step else None)
    text = "; ".join(describe("", value).strip() for value in values) or None
    held = seen if text is not None else None
    kept = values[0].elements if len(values) == 1 else None
    tensors = [tensor for tensor in row.tensors if tensor["device"]]
    if not tensors:
        return [SuspectArgument(row, None, producer, text, held, kept, None)]
    return [SuspectArgument(row, tensor, producer, text, held, kept, _seen(detail, tensor)) for tensor in tensors]


def _seen(detail: LaunchDetail, tensor: dict[str, Any]) -> Seen:
    step = tensor["step"]
    return Seen(tensor["call"] == detail.call, step if step != detail.step else None)


def _whole_numbers(values: Sequence[ValueRow]) -> tuple[int, int] | None:
    """Return the minimum and the maximum of a tensor of integers, or None if not all elements were read."""
    value = values[0] if len(values) == 1 else None
    if value is None or value.looked_at != value.numel or not isinstance(value.min, int):
        return None
    return (value.min, value.max) if isinstance(value.max, int) else None


def _producer(trace: Trace, detail: LaunchDetail, row: ArgumentRow) -> Producer | None:
    launch = detail.written_by.get(row.argument)
    if launch is None:
        return None
    seen = last_seen(trace, detail.log, launch)
    return Producer(launch, seen.ordinal, seen.kernel)


def _reaches(trace: Trace, detail: LaunchDetail, held: Mapping[str, tuple[int, int]]) -> list[Reach]:
    site = detail.site
    code = wrapper_code(trace, detail.graph) if site.kind in ("cpp", "triton", "user_triton") else None
    part = cut(code, site.kernel, site.kind, None) if code is not None else None
    if code is None or part is None:
        return []
    if site.kind != "user_triton":
        return reaches(part.text, site.arguments, held, parameter_numbers(site))
    lines = code.split("\n")
    launch = lines[site.line - 1] if 1 <= site.line <= len(lines) else ""
    return user_reaches(part.text, launch, site.arguments, partial(_size, trace, detail, code), held)


def _size(trace: Trace, detail: LaunchDetail, code: str, expression: ast.expr) -> int | None:
    """Return the value of an expression over sizes in the call of a launch, or None."""
    site = detail.site
    if isinstance(expression, ast.Constant):
        return expression.value if isinstance(expression.value, int) else None
    tree = parsed(code)
    function = function_named(tree, site.function) if tree is not None else None
    if function is None:
        return None
    shapes = shapes_of_function(trace, site.graph, site.function, detail.call)
    recorded = {shape.name: (shape.size, shape.stride) for shape in shapes}
    value = Sizes(function, recorded, detail.symbols).value(expression)
    return value if isinstance(value, int) else None


def argument_sentences(found: Suspect, *, written: bool) -> list[str]:
    """Return a sentence for each argument that the launch reads, or that it writes if `written` is true."""
    roles = ("out", "inout") if written else ("in", "inout")
    lines = [_sentence(one, written) for one in found.arguments if one.row.role in roles]
    rest = len(lines) - MOST_ARGUMENTS
    return lines if rest <= 0 else [*lines[:MOST_ARGUMENTS], f"and {rest:,} more"]


def _sentence(one: SuspectArgument, written: bool) -> str:
    """Return ``buf3 float32 [8, 4] stride [4, 1] in 128 B at 0x7f…, written by launch 12 (mm): finite, largest 3``."""
    tensor = one.tensor
    if tensor is None:
        return f"{one.name}: {one.row.unseen or 'not seen at run time'}"
    offset = f" offset {tensor['offset']:,}" if tensor["offset"] else ""
    storage = f" in {tensor['storage_bytes']:,} B" if tensor["storage_bytes"] is not None else ""
    address = f" at {tensor['storage']:#x}" if tensor["storage"] is not None else ""
    parts = [f"{one.name} {tensor['dtype']} {tensor['size']} stride {tensor['stride']}{offset}{storage}{address}"]
    needs, there = one.needs_bytes, tensor["storage_bytes"]
    if needs is not None and there is not None and needs > there:
        parts[0] += f", of which it needs {needs:,} B"
    if not written:
        parts.append(_origin(one))
    if address and one.tensor_seen is not None and one.tensor_seen.text:
        parts.append(f"that address {one.tensor_seen.text}")
    return ", ".join(part for part in parts if part)


def _origin(one: SuspectArgument) -> str:
    if one.row.held == "uninitialised":
        return "never written"
    by = f"written by launch {one.producer.launch} ({one.producer.kernel})" if one.producer else ""
    when = one.values_seen.text if one.values_seen is not None else ""
    held = " ".join(part for part in (when, one.values) if part) if one.values else ""
    return ": ".join(part for part in (by, held) if part)


def scalar_sentences(found: Suspect) -> list[str]:
    """Return text like ``ks0 = 16 (int64_t, s77)`` for each argument that is not a tensor."""
    rows = found.detail.site.scalars
    rest = len(rows) - MOST_ARGUMENTS
    return [_scalar(row) for row in rows[:MOST_ARGUMENTS]] + ([f"and {rest:,} more"] if rest > 0 else [])


def _scalar(row: ScalarRow) -> str:
    if row.value is None:
        return f"{row.label}: the log has no value of {row.expression}"
    origin = row.expression if row.expression != row.value else None
    more = ", ".join(part for part in (row.type, origin) if part is not None)
    return f"{row.label} = {row.value}" + (f" ({more})" if more else "")


def scalar_facts(found: Suspect) -> list[dict[str, Any]]:
    """Return the arguments that are not tensors, for programs; `value` is as Python prints it."""
    return [asdict(row) for row in found.detail.site.scalars]


def reach_sentence(found: Suspect) -> str | None:
    """Return whether the kernel's source accesses memory outside of the storages; None if nothing is known."""
    leaving = [one for one in found.reaches if one.leaves]
    if leaving:
        return "according to its source, the kernel " + "; ".join(_leaving(one) for one in leaving)
    by_values = [one for one in found.reaches if one.may_leave and one.held]
    unknown = [one for one in found.reaches if one.leaves is None and one not in by_values]
    if by_values:
        said = [f"with the values of {' and '.join(one.held)}, the kernel {_leaving(one)}" for one in by_values]
        return "according to its source, " + "; ".join([*said, *map(_unknown, unknown[:MOST_UNKNOWN])])
    if not unknown:
        return "according to its source, every index stays within its storage" if found.reaches else None
    rest = "; every other index stays within its storage" if len(unknown) < len(found.reaches) else ""
    more = [f"the same holds for {left} more" for left in [len(unknown) - MOST_UNKNOWN] if left > 0]
    return "; ".join([*map(_unknown, unknown[:MOST_UNKNOWN]), *more]) + rest


def _leaving(one: Reach) -> str:
    assert one.room is not None
    most = "" if one.is_exact else "at most "
    return (
        f"{one.does} elements {one.first:,} to {most}{one.last:,} of {one.name} ({one.parameter}), "
        f"whose storage has elements {one.room[0]:,} to {one.room[1]:,}"
    )


def _unknown(one: Reach) -> str:
    why = f" ({one.why_unknown})" if one.why_unknown else ""
    return f"it is unknown how far it {one.does} {one.name} ({one.parameter}){why}"


def argument_facts(found: Suspect) -> list[dict[str, Any]]:
    """Return the arguments for programs: sizes in bytes, addresses as text."""
    return [
        {
            "argument": one.row.name, "role": one.row.role, "buffer": one.row.buffer, "parameter": one.row.parameter,
            **({} if one.tensor is None else _tensor_facts(one.tensor)), "needs_bytes": one.needs_bytes,
            "written_by": one.producer.launch if one.producer else None,
            "written_by_launch_in_step": one.producer.ordinal if one.producer else None,
            "written_by_kernel": one.producer.kernel if one.producer else None,
            "values": one.values, "values_step": one.values_seen.step if one.values_seen else None,
            "values_in_call": one.values_seen.in_call if one.values_seen else None,
            "address_step": one.tensor_seen.step if one.tensor_seen else None,
            "address_in_call": one.tensor_seen.in_call if one.tensor_seen else None, "unseen": one.row.unseen,
            "elements": one.elements,
        }
        for one in found.arguments
    ]  # fmt: skip


def _tensor_facts(tensor: dict[str, Any]) -> dict[str, Any]:
    address = tensor["storage"]
    kept = ("item", "dtype", "size", "stride", "device", "offset", "storage_bytes")
    return {name: tensor[name] for name in kept} | {"address": None if address is None else f"{address:#x}"}


def reach_facts(found: Suspect) -> list[dict[str, Any]]:
    """Return the range that the kernel accesses, in elements from the begin of each argument, for programs."""
    return [
        {
            "parameter": one.parameter, "buffer": one.name, "does": one.does, "first": one.first, "last": one.last,
            "is_exact": one.is_exact, "storage_first": one.room[0] if one.room else None,
            "storage_last": one.room[1] if one.room else None, "leaves_storage": one.leaves,
            "why_unknown": one.why_unknown, "by_values_of": list(one.held),
        }
        for one in found.reaches
    ]  # fmt: skip
