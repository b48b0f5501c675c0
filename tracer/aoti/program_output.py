"""Removes the lines of PyTorch's C++ debug printer, which go to a log, from the output of a command.

Only text that certainly is the printer's is removed: a complete line of level 1 or 3, and a complete block of level 2
without other lines in it and with all of its elements. Everything else is passed on unchanged and in order. Text that
may be the begin of the printer's next line waits for the rest of it.
"""

from __future__ import annotations

import math
import re

from stepscope.tracer.aoti.printer_output import DEVICE, FIELDS, LONGEST_LINE, ORDER, PRINTS_ALL_UP_TO, WHOLE_BLOCK

_BEGINS = (
    b"[  aoti_model_inputs - ", b"[  before_launch - ", b"[  after_launch - ", b"[ before_launch: ",
    b"[ after_launch: ", b"aoti_torch_save_tensor_handle: ",
)  # fmt: skip
_BEGIN = re.compile(b"|".join(map(re.escape, _BEGINS)))
_ONE_LINE = re.compile(
    rb"\[ (?:before|after)_launch: [^\[\n]*? \]\r?\n"
    rb"|\[  (?:before|after)_launch - [^\[\n]*?: -?\d{1,24}  \]\\n"
    rb"|aoti_torch_save_tensor_handle: (?:Saved tensor to [^\n]+\.pt|Path does not exist, creating it\.\.\.[^\n]*)\r?\n"
)
_FIRST = re.compile(rb"\[  (?:aoti_model_inputs|before_launch|after_launch) - [^\[\n]*?  \]:\r?")
_EMPTY = re.compile(rb"\r?\n")
_PLACE = re.compile(rb"\s*(?:\([\d,.]+\) =|Columns +\d+ to +\d+)")
_NUMBER = re.compile(rb"[-+]?(?:nan|inf|\d+\.?\d*(?:e[-+]?\d+)?)")
_ELEMENTS = re.compile(rb"[-+.\deinfa ]*")
_SCALE = re.compile(rb"\s*(?:Columns +\d+ to +)?[-+.\de]+ \*\s*")
"""PyTorch writes no space between the last column and the scale: ``Columns 1 to 101e-13 *`` is 10 and 1e-13."""
_TYPE = re.compile(rb"\[ \w+\{([\d,]*)\} \]")
_MOST_LINES = 200 + len(FIELDS)


class ProgramOutput:
    """Filters the output piece by piece."""

    def __init__(self) -> None:
        self._held = b""
        self._is_behind_block = False
        self.is_urgent = False
        """Whether the waiting text may be the program's own, so that it should not wait long."""

    def feed(self, data: bytes) -> bytes:
        """Return the text that may be passed on."""
        data, self._held = self._held + data, b""
        passed, position = [], 0
        if self._is_behind_block and data:
            position = self._behind_block(data, 0)
        while position < len(data):
            begin = _BEGIN.search(data, position)
            if begin is None:
                cut = len(data) - _begun(data[position:])
                self._held, self.is_urgent = data[cut:], True
                passed.append(data[position:cut])
                break
            passed.append(data[position : begin.start()])
            position = begin.start()
            if (line := _ONE_LINE.match(data, position)) is not None:
                position = line.end()
            elif (block := WHOLE_BLOCK.match(data, position)) is not None and _is_printers(block):
                position = self._behind_block(data, block.end())
            elif block is None and (is_urgent := _may_become_one(data[position:])) is not None:
                self._held, self.is_urgent = data[position:], is_urgent
                break
            else:
                passed.append(begin[0])
                position = begin.end()
        self.is_urgent = self.is_urgent and bool(self._held)
        return b"".join(passed)

    def release(self) -> bytes:
        """Return the waiting text: it has waited too long, or the output has ended."""
        held, self._held, self.is_urgent = self._held, b"", False
        return held

    def _behind_block(self, data: bytes, position: int) -> int:
        """Return the position after the empty line that ends a block, which may not have been read yet."""
        rest = data[position : position + 2]
        self._is_behind_block = rest in (b"", b"\r")
        empty = _EMPTY.match(data, position)
        return position if empty is None else empty.end()


def _begun(data: bytes) -> int:
    """Return the number of bytes at the end that may be the begin of a line of the printer."""
    for length in range(min(len(data), max(map(len, _BEGINS))), 0, -1):
        if any(begin.startswith(data[-length:]) for begin in _BEGINS):
            return length
    return 0


def _may_become_one(data: bytes) -> bool | None:
    """Return whether `data`, which begins like a line of the printer, is urgent (`ProgramOutput.is_urgent`).

    Returns None if it cannot become a line or a block of the printer any more.
    """
    *lines, tail = data.split(b"\n")
    if len(tail) > LONGEST_LINE or len(lines) > _MOST_LINES:
        return None
    if not lines:
        return False
    if not _FIRST.fullmatch(lines[0]):
        return None
    expected = 0
    for line in lines[1:]:
        name, colon, _ = line.partition(b": ")
        position = ORDER.get(name) if colon else None
        if position is None and expected == 0 and _is_of_elements(line):
            continue
        if position is None or not (position == expected or position == DEVICE > expected > ORDER[b"Dtype"]):
            return None
        expected = position + 1
    is_expected = any(name.startswith(tail) or tail.startswith(name) for name in FIELDS[expected:])
    return not (is_expected or (expected == 0 and _is_of_elements(tail)))


def _is_of_elements(line: bytes) -> bool:
    line = line.rstrip(b"\r")
    return bool(_TYPE.fullmatch(line) or _SCALE.fullmatch(line) or _ELEMENTS.fullmatch(_PLACE.sub(b"", line, count=1)))


def _is_printers(block: re.Match[bytes]) -> bool:
    """Return whether a block has exactly the elements that its last line before the statistics announces."""
    elements, numel = block[3].replace(b"\r", b""), block[4]
    if not elements:
        return True
    lines = elements.splitlines()
    shape = _TYPE.fullmatch(lines.pop())
    if shape is None or not numel.isdigit() or int(numel) > PRINTS_ALL_UP_TO:
        return False
    sizes = [int(size) for size in shape[1].split(b",") if size]
    if math.prod(sizes) != int(numel) or not all(map(_is_of_elements, lines)):
        return False
    values = [_PLACE.sub(b"", line, count=1) for line in lines if not _SCALE.fullmatch(line)]
    return sum(len(_NUMBER.findall(line)) for line in values) == int(numel)
