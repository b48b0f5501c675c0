"""Parses the prose in PyTorch's records: tracebacks, guard failures and graph breaks."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

_FRAME = re.compile(r'^ *File "([^"\n]+)", line (\d{1,9}), in ([^\n]+)(?:\n +([^\n]+))?', re.MULTILINE)
_USER_PARTS = (
    "User code traceback:",
    "User stack trace:",
    "from user code:",
    "from user code at:",
    "The graph break occurred in the following user code:",
)
_REASONS = ("Graph Break Reason:", "\nReason:")
_EXCEPTION = re.compile(r"^torch\._dynamo\.exc\.\w+: (.*?)(?=\n[ \t]*\n|\nfrom user code|\Z)", re.MULTILINE | re.DOTALL)
_PLACE = re.compile(r"^Graph break in user code at (.+):(\d{1,9})$", re.MULTILINE)
_AOT_ID = re.compile(rb"# AOT ID: \[?['\"]?(\w+)")
_NOISE = ("For more details about this graph break", "Developer debug context:")
_ENCOUNTERED = "Encountered graph break when attempting to trace"
_SKIPPED = re.compile(r"^Failed to handle graph break gracefully\. .*?Graph break encountered:\s*", re.DOTALL)
_OF_TORCH = re.compile(
    r"[/\\]torch[/\\](?:_\w+\.py$|(?:_\w+|autograd|compiler|distributed|export|func|fx|nn|optim|utils)[/\\])"
)
_OF_AN_OPTIMIZER = re.compile(r"[/\\]torch[/\\]optim[/\\](?!swa_utils|lr_scheduler)[^/\\]+\.py$")
_WRAPPER = re.compile(r"[/\\]torch[/\\]_dynamo[/\\]external_utils\.py$")
_WRAPPED = re.compile(rb"GuardManager: source=L\['fn'\], [^\n]{0,1000}?\btype=<class '(\w+(?:\.\w+)+)'>")
_COMPILE_ID = re.compile(r"!?\d+(?:/\d+)+: ")
_FAKE_RAISED = re.compile(r"^ *Explanation: Dynamo failed to run FX node .*: got ([A-Z]\w*\(.+\))$", re.MULTILINE)
_GUARD_COMMENT = re.compile(r"  # (.*?)  # ([^\s:]+):(\d{1,9}) in (\w+)")
_SPACES = re.compile(r"\s+")


@dataclass(frozen=True)
class UserFrame:
    """A line of the user's program."""

    file: str
    line: int
    function: str
    code: str


@dataclass(frozen=True)
class Cause:
    """The cause in one line, the complete text of PyTorch, and the line of the program."""

    cause: str
    text: str
    frame: UserFrame | None
    stack: tuple[UserFrame, ...] = ()
    """For a graph break, the frames of the user's part of its traceback, outermost first."""


def caller_of(stack: Sequence[UserFrame]) -> UserFrame | None:
    """Return the innermost frame of a stack that is not torch's own, or None."""
    return next((frame for frame in reversed(stack) if not is_of_torch(frame.file)), None)


def is_of_torch(file: str) -> bool:
    return _OF_TORCH.search(file) is not None


def is_of_an_optimizer(file: str) -> bool:
    """Return whether `file` is that of an optimizer of `torch.optim`."""
    return _OF_AN_OPTIMIZER.search(file) is not None


def is_wrapper(file: str) -> bool:
    """Return whether the file is that of the function through which Dynamo compiles torch's own modules and functions,
    such as a Sequential, which it has in its variable `fn`."""
    return _WRAPPER.search(file) is not None


def wrapped_class(guards: bytes) -> str | None:
    """Return the class of the variable `fn` of a compiled function, ``torch.nn.modules.linear.Linear``, as the guards
    of its code name it; None without such a variable, or if it is a function."""
    match = _WRAPPED.search(guards)
    return match[1].decode("utf-8", "replace") if match else None


def without_torch_at_the_end(stack: Sequence[UserFrame]) -> list[UserFrame]:
    """Return the stack down to the innermost frame that is not torch's own, or all of it if there is none."""
    last = next((place for place in range(len(stack), 0, -1) if not is_of_torch(stack[place - 1].file)), None)
    return list(stack[:last])


def user_frame(text: str) -> UserFrame | None:
    """Return the innermost frame of the user's part of a traceback, torch's own only if there is no other."""
    frames = _user_frames(text)
    return caller_of(frames) or (frames[-1] if frames else None)


def _user_frames(text: str) -> list[UserFrame]:
    part = next((text.split(mark, 1)[1] for mark in _USER_PARTS if mark in text), "")
    part = part.split("Traceback (most recent call last)", 1)[0]
    return [UserFrame(file, int(line), function, code) for file, line, function, code in _FRAME.findall(part)]


def graph_break(text: str) -> Cause:
    """Return the cause in a `dynamo_graph_break_reason`, or in a restart reason of older versions."""
    reason = _reason_in(text)
    for mark in (*_USER_PARTS, "Traceback (most recent call last)"):
        reason = reason.split(mark, 1)[0]
    reason = _SKIPPED.sub("", _without_noise(reason))
    lines = [line for line in reason.split("\n") if line.strip()]
    if len(lines) > 1 and lines[0].lstrip().startswith(_ENCOUNTERED):
        reason = "\n".join(lines[1:])
    frame = user_frame(text)
    place = _PLACE.search(text)
    if frame is None and place is not None:
        frame = UserFrame(place[1], int(place[2]), "", "")
    return Cause(headline(reason), reason, frame, tuple(_user_frames(text)))


def _reason_in(text: str) -> str:
    """Return the reason. Older versions may write it only at the end of the traceback."""
    for mark in _REASONS:
        if mark in text:
            return text.split(mark, 1)[1]
    raised = _EXCEPTION.findall(text)
    return raised[-1] if raised else text


def _without_noise(reason: str) -> str:
    for mark in _NOISE:
        head, found, _ = reason.partition(mark)
        if found and not head.rpartition("\n")[2].strip():
            reason = head
    return reason.strip()


def may_be_graph_break(restart_reason: str) -> bool:
    """Return whether the reason is not one of Dynamo's own analyses, which have an exception's class as their name."""
    return "RestartAnalysis" not in restart_reason


def failure(kind: str, reason: str, frame: UserFrame | None) -> Cause:
    text = _without_noise(reason)
    raised = _FAKE_RAISED.search(text)
    said = f"{headline(text)}: {raised[1]}" if raised else headline(text)
    return Cause(headline(f"{kind}: {said}") if text else kind, text, frame)


def recompile_reason(text: str) -> Cause:
    """Return the cause of a failed guard: its text without the padding and the comment after it."""
    first = text.split("\n", 1)[0]
    guard = first.split("  # ", 1)[0]
    return Cause(headline(guard), text.strip(), user_frame(text))


def guard_place(reason: str, file: str) -> UserFrame | None:
    """Return the line of `file` that a failed guard's comment names by the end of its path, or None."""
    found = _GUARD_COMMENT.search(reason.split("\n", 1)[0])
    if found is None or not file.endswith(found[2]):
        return None
    return UserFrame(file, int(found[3]), found[4], found[1].strip())


def with_prefix(reason: str, prefix: str) -> str:
    """Return a failed guard with `prefix` before the compile id with which it begins."""
    return prefix + reason if prefix and _COMPILE_ID.match(reason) else reason


def headline(text: str) -> str:
    """Return the first line that is not blank, with the next one if it ends in a colon; at most 300 characters."""
    lines = [_SPACES.sub(" ", line.strip()) for line in text.split("\n") if line.strip()]
    if not lines:
        return ""
    short = " ".join(lines[:2]) if lines[0].endswith(":") else lines[0]
    if len(short) > 1 and short[0] in "'\"" and short[0] == short[-1] and short[0] not in short[1:-1]:
        short = short[1:-1]
    return short if len(short) <= 300 else short[:299] + "…"


def aot_id(code: bytes) -> str | None:
    """Return the id, like ``0_forward``, in the first lines of a generated wrapper, or None."""
    match = _AOT_ID.search(code[:200])
    return match[1].decode() if match else None
