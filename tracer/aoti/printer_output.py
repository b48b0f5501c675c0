"""Parses the text that PyTorch's C++ debug printer writes to standard output.

The printer (torch/csrc/inductor/aoti_torch/shim_common.cpp, torch/_inductor/codegen/debug_utils.py) has three levels:
`aoti_torch_save_tensor_handle: Saved tensor to FILE` (1), a block of lines for each tensor before and after a launch
(2), a line before and after each launch (3). A program's own output may occur between any two lines, and at the
beginning of a block's first line. Threads share one standard output: if two open blocks expect the same line, it is
assigned to neither.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from stepscope.tracer.aoti.saved_files import Kept

Moment = Literal["input", "before", "after"]
LONGEST_LINE = 16_384
MOST_OPEN = 64
PRINTS_ALL_UP_TO = 64
"""Maximum number of elements of a tensor whose values are printed."""

_MARKS = (b"_launch", b"aoti_")
"""Texts one of which is in each line that begins an output of the printer."""
_BLOCK = re.compile(rb"\[  (aoti_model_inputs|before_launch|after_launch) - ([^\[]*?)  \]:")
_LAUNCH = re.compile(rb"\[ (before|after)_launch: ([^\[]*?) \]\s*$")
_SCALAR = re.compile(rb"\[  (before|after)_launch - ([^\[]*?): (-?\d{1,24})  \](?!:)")
_SAVED = re.compile(rb"aoti_torch_save_tensor_handle: Saved tensor to (.+\.pt)\s*$")
_FILE = re.compile(
    r"(?P<moment>before|after)_launch_(?P<kernel>.+?)_(?P<argument>(?:buf|arg)\d+(?:_\d+)?|[^_]+)"
    r"_(?P<device>[a-z]+(?::\d+)?)\.pt"
)
_VALUES = re.compile(rb"\s*(?:\([\d,.]+\) =|Columns +\d+ to +\d+)?[-+.\deinfa* ]*")
_BAD = re.compile(rb"-?(?:nan|inf)")
FIELDS = (
    b"Number of elements", b"Dtype", b"Mean value", b"Min value", b"Max value", b"Device", b"Size", b"Stride",
    b"Layout", b"Is contiguous", b"Requires grad",
)  # fmt: skip
ORDER = {name: position for position, name in enumerate(FIELDS)}
_LAST = len(FIELDS) - 1
DEVICE = ORDER[b"Device"]
WHOLE_BLOCK = re.compile(
    _BLOCK.pattern + rb"\r?\n((?:(?!\[  )[^\n]*\n){0,200}?)"
    + b"".join(rb"%b%b: ([^\r\n]*)\r?\n%b" % (b"(?:" * ("value" in f), f.encode(), b")?" * ("value" in f))
               for f in map(bytes.decode, FIELDS))
)  # fmt: skip
"""A complete block without other lines in it, which nearly all blocks are."""
_DTYPES = {
    "float": "float32", "double": "float64", "c10::Half": "float16", "c10::BFloat16": "bfloat16",
    "signed char": "int8", "char": "int8", "unsigned char": "uint8", "short int": "int16", "short": "int16",
    "short unsigned int": "uint16", "int": "int32", "unsigned int": "uint32", "long int": "int64", "long": "int64",
    "long unsigned int": "uint64", "unsigned long": "uint64", "c10::complex<float>": "complex64",
    "c10::complex<double>": "complex128", "c10::complex<c10::Half>": "complex32",
}  # fmt: skip


@dataclass(frozen=True)
class PrintedTensor:
    """A block of level 2. Values that were not printed, are torn or mixed with another thread's lines are None."""

    moment: Moment
    """``input`` for an input of the model; ``before`` or ``after`` a launch."""
    kernel: str | None
    argument: str
    dtype: str | None = None
    numel: int | None = None
    mean: float | None = None
    """Mean of all elements, which is not finite if any of them is not."""
    min: float | None = None
    max: float | None = None
    device: str | None = None
    size: list[int] | None = None
    stride: list[int] | None = None
    layout: str | None = None
    is_contiguous: bool | None = None
    requires_grad: bool | None = None
    bad: tuple[int, int, int] | None = None
    """Numbers of NaN, +inf and -inf; None if the elements were not printed, or not all of them are known."""
    at_ns: int | None = None
    """Time at which its first line was read."""
    whole: bool = True
    """Whether it has every line."""

    @property
    def statistics(self) -> tuple[object, ...]:
        """Key that is equal for a tensor that did not change, even if it contains NaN."""
        return self.dtype, self.numel, *(repr(x and abs(x) if x != x else x) for x in (self.mean, self.min, self.max))


@dataclass(frozen=True)
class PrintedLaunch:
    """A line of level 3."""

    moment: Moment
    kernel: str
    at_ns: int | None = None


@dataclass(frozen=True)
class PrintedScalar:
    """A number that a Triton kernel gets as an argument, at level 2."""

    moment: Moment
    kernel: str
    argument: str
    """Expression in the generated code: ``8192L``, ``s77``, the name of a variable."""
    value: int
    at_ns: int | None = None


@dataclass(frozen=True)
class PrintedFile:
    """A line of level 1: a tensor was saved to a file."""

    path: str
    moment: Moment
    kernel: str
    argument: str
    device: str
    at_ns: int | None = None
    kept: Kept | None = None
    """Copy of the file; None if it was not copied."""


Printed = PrintedTensor | PrintedScalar | PrintedLaunch | PrintedFile


@dataclass
class _Block:
    """A block that is not complete yet."""

    moment: Moment
    kernel: str | None
    argument: str
    at_ns: int | None
    next: int = 0
    """Position in FIELDS of the next line; lines of statistics may be missing."""
    found: dict[int, bytes] = field(default_factory=dict)
    lost: set[int] = field(default_factory=set)
    values: list[bytes] = field(default_factory=list)
    mixed_values: bool = False
    stalled: bool = False
    """Whether no line of it was read since a later block began."""

    def waits_for(self, position: int) -> bool:
        """Return whether a line may be next; an empty tensor has no statistics, a complex one no extremes."""
        return position == self.next or (position == DEVICE > self.next > ORDER[b"Dtype"])

    def finished(self) -> PrintedTensor:
        texts = [
            None if (raw := self.found.get(n)) is None or n in self.lost else raw.decode("utf-8", "replace").strip()
            for n in range(len(FIELDS))
        ]
        numel, dtype, mean, low, high, device, size, stride, layout, is_contiguous, requires_grad = texts
        count = _whole(numel)
        return PrintedTensor(
            self.moment, self.kernel, self.argument, _dtype(dtype), count, _number(mean), _number(low), _number(high),
            device, _numbers(size), _numbers(stride), layout, _flag(is_contiguous), _flag(requires_grad),
            self._bad(count), self.at_ns, self.next > _LAST,
        )  # fmt: skip

    def _bad(self, numel: int | None) -> tuple[int, int, int] | None:
        if self.mixed_values or numel is None or numel > PRINTS_ALL_UP_TO:
            return None
        words = [word for line in self.values for word in _BAD.findall(line)]
        nan = sum(word.endswith(b"nan") for word in words)
        found = nan, words.count(b"inf"), words.count(b"-inf")
        return found if sum(found) <= numel else None


class PrinterReader:
    """Reads the text in pieces. A line is parsed once its end was read, or by `end`."""

    def __init__(self) -> None:
        self._open: list[_Block] = []
        self._tail = b""
        self._is_overlong = False

    def feed(self, data: bytes, at_ns: int | None = None) -> Iterator[Printed]:
        """Yield the contents of the lines that end in `data`, which was read at `at_ns`."""
        cut = data.rfind(b"\n") + 1
        if not cut:
            self._keep(data)
            return
        first = data.find(b"\n") + 1
        self._keep(data[:first])
        head, self._tail = self._tail, b""
        if not self._is_overlong:
            yield from self._lines(head, at_ns)
        self._is_overlong = False
        yield from self._lines(data[first:cut], at_ns)
        self._keep(data[cut:])

    def end(self, at_ns: int | None = None) -> Iterator[Printed]:
        """Yield the contents of a last line without its end, and of incomplete blocks."""
        tail, self._tail = self._tail, b""
        if not self._is_overlong and any(mark in tail for mark in _MARKS):  # else it may end in a torn number
            yield from self._line(tail.rstrip(b"\r"), at_ns)
        for block in self._open:
            yield block.finished()
        self._open = []

    def _keep(self, data: bytes) -> None:
        """Keep the begin of a line, unless it is longer than any line of the printer."""
        self._is_overlong = self._is_overlong or len(self._tail) + len(data) > LONGEST_LINE
        self._tail = b"" if self._is_overlong else self._tail + data

    def _lines(self, data: bytes, at_ns: int | None) -> Iterator[Printed]:
        position, size = 0, len(data)
        marks = dict.fromkeys(_MARKS, -1)
        while position < size:
            if not self._open:  # skips a program's own output at once
                for mark, at in marks.items():
                    if at < position and (at := data.find(mark, position)) < 0:
                        at = size
                    marks[mark] = at
                first = min(marks.values())
                if first == size:
                    return
                position = data.rfind(b"\n", position, first) + 1 or position
                if (whole := WHOLE_BLOCK.match(data, position)) is not None:
                    position = whole.end()
                    yield _block(whole, at_ns)
                    continue
            end = data.find(b"\n", position)
            end = size if end < 0 else end
            line = data[position:end].rstrip(b"\r")
            position = end + 1
            yield from self._line(line, at_ns) if len(line) <= LONGEST_LINE else ()

    def _line(self, line: bytes, at_ns: int | None) -> Iterator[Printed]:
        if b"_launch" in line or b"aoti_" in line:
            heads = sorted((*_BLOCK.finditer(line), *_SCALAR.finditer(line)), key=re.Match.start)
            for found in heads:
                if found.re is _BLOCK:
                    yield from self._begin(found[1], found[2], at_ns)
                else:
                    yield _scalar(found, at_ns)
            if heads:
                return
            if (launch := _LAUNCH.search(line)) is not None:
                moment: Moment = "before" if launch[1] == b"before" else "after"
                yield PrintedLaunch(moment, _name(launch[2]), at_ns)
                return
            if (saved := _SAVED.search(line)) is not None:
                yield from _file(saved[1].decode("utf-8", "surrogateescape"), at_ns)
                return
        if self._open:
            yield from self._continue(line)

    def _begin(self, word: bytes, rest: bytes, at_ns: int | None) -> Iterator[Printed]:
        for block in self._open:
            block.stalled = True
        if len(self._open) == MOST_OPEN:
            yield self._open.pop(0).finished()
        self._open.append(_begun(word, rest, at_ns))

    def _continue(self, line: bytes) -> Iterator[Printed]:
        name, colon, text = line.partition(b": ")
        position = ORDER.get(name) if colon else None
        if position is None:
            self._take_values(line)
            return
        waiting = [block for block in self._open if block.waits_for(position)]
        if not waiting:  # the begin of its block is missing
            return
        if len(waiting) > 1:
            for block in waiting:
                block.lost.add(position)
        block = waiting[-1]
        block.found[position] = text
        block.next, block.stalled = position + 1, False
        if position == _LAST:
            # A block that got no line until a later one was complete is torn, as by an exception.
            done = [one for one in self._open if one is block or (one.stalled and one.next)]
            self._open = [one for one in self._open if one not in done]
            for one in done:
                yield one.finished()

    def _take_values(self, line: bytes) -> None:
        """Add a line to the elements of the open block if it is a line of printed elements."""
        waiting = [block for block in self._open if block.next == 0]
        if not waiting or not _VALUES.fullmatch(line):
            return
        for block in waiting:
            block.mixed_values = block.mixed_values or len(waiting) > 1
        if len(waiting[-1].values) <= PRINTS_ALL_UP_TO * 2:
            waiting[-1].values.append(line)


def _block(whole: re.Match[bytes], at_ns: int | None) -> PrintedTensor:
    word, rest, values, *fields = whole.groups()
    block = _begun(word, rest, at_ns)
    block.values = [line for line in values.splitlines() if _VALUES.fullmatch(line)]
    block.found = {position: text for position, text in enumerate(fields) if text is not None}
    block.next = len(FIELDS)
    return block.finished()


def _begun(word: bytes, rest: bytes, at_ns: int | None) -> _Block:
    moment: Moment = "before" if word == b"before_launch" else "after" if word == b"after_launch" else "input"
    kernel, _, argument = rest.rpartition(b" - ")
    return _Block(moment, _name(kernel) or None, _name(argument), at_ns)


def _scalar(found: re.Match[bytes], at_ns: int | None) -> PrintedScalar:
    """Return a number; the printer writes a backslash and ``n`` instead of a line end, so other text follows it."""
    kernel, _, argument = found[2].rpartition(b" - ")
    moment: Moment = "before" if found[1] == b"before" else "after"
    return PrintedScalar(moment, _name(kernel), _name(argument), int(found[3]), at_ns)


def _file(path: str, at_ns: int | None) -> Iterator[PrintedFile]:
    """Yield a saved file, ``tmp/aoti_torch/before_launch_KERNEL_ARGUMENT_DEVICE.pt``; older versions of torch omit the
    last slash."""
    base = path.replace("\\", "/").rpartition("/")[2].removeprefix("aoti_torch")
    if found := _FILE.fullmatch(base):
        moment: Moment = "before" if found["moment"] == "before" else "after"
        yield PrintedFile(path, moment, found["kernel"], found["argument"], found["device"], at_ns)


def _name(raw: bytes) -> str:
    return raw.decode("utf-8", "replace").strip()


def _dtype(text: str | None) -> str | None:
    if text is None:
        return None
    return _DTYPES.get(text, text.removeprefix("c10::").lower())


def _number(text: str | None) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError:  # complex, a bool, torn
        return {"true": 1.0, "false": 0.0}.get(text or "")


def _whole(text: str | None) -> int | None:
    value = _number(text)
    return int(value) if value is not None and math.isfinite(value) and value >= 0 else None


def _numbers(text: str | None) -> list[int] | None:
    if text is None or not re.fullmatch(r"\[(?:\d{1,19}(?:, \d{1,19})*)?\]", text):
        return None
    return [int(part) for part in text[1:-1].split(", ") if part]


def _flag(text: str | None) -> bool | None:
    return {"1": True, "0": False}.get(text or "")
