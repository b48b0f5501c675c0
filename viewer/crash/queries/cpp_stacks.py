"""Parses where in C++ an exception was raised, which PyTorch prints with TORCH_SHOW_CPP_STACKTRACES=1."""

from __future__ import annotations

import re
from dataclasses import dataclass

MOST_FRAMES, MOST_LETTERS = 16, 240
_RAISED = re.compile(r"^Exception raised from (.+?) at (.+?):(\d+) \(most recent call first\):", re.MULTILINE)
_FRAME = re.compile(r"^(?:frame )?#\d+:? (.+)$")
_RAISING = ("c10::Error::Error(", "c10::detail::torchCheckFail(", "c10::detail::torchInternalAssertFail(",
            "std::_Function_handler<std::shared_ptr<c10::LazyValue<")  # fmt: skip
_INTERPRETER = re.compile(r"_?Py[A-Z_]|cfunction_|method_vectorcall|run_eval|__libc_start|_start\b|<unknown function>")


@dataclass(frozen=True)
class CppRaise:
    """The place in C++ that raised an exception."""

    function: str
    file: str
    line: int
    frames: list[str]
    """Frames, innermost first, up to the interpreter."""

    @property
    def text(self) -> str:
        return f"{self.function} ({self.file}:{self.line})"


def cpp_raise(text: str | None) -> CppRaise | None:
    """Return the last place in the text of an exception or of standard error, or None."""
    found = list(_RAISED.finditer(text or ""))
    if not found or text is None:
        return None
    function, file, line = found[-1].groups()
    return CppRaise(function, file, int(line[:9]), _frames(text[found[-1].end() :]))


def _frames(text: str) -> list[str]:
    frames: list[str] = []
    for line in text.splitlines():
        frame = _FRAME.match(line.strip())
        if frame is None and not frames:
            continue
        if frame is None or _INTERPRETER.match(frame[1]) or len(frames) == MOST_FRAMES:
            break
        if not frame[1].startswith(_RAISING):
            frames.append(frame[1] if len(frame[1]) <= MOST_LETTERS else f"{frame[1][:MOST_LETTERS]}…")
    return frames
