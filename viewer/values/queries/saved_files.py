"""Finds, checks and copies the files of saved tensors for `stepscope tensor`, without torch.

A log is untrusted: only the last part of a name is used, and only in the folder that the log's own name gives. Links
are not followed, and a file whose digest differs from the log's is not copied.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from stepscope.viewer.errors import StepscopeError
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.text.clean import clean
from stepscope.viewer.text.formats import format_bytes, shape_text
from stepscope.viewer.text.table import aligned
from stepscope.viewer.values.queries.saved_tensors import SavedTensorPlace, saved_tensor, saved_tensors

_FILE = re.compile(
    r"(?:[A-Za-z0-9_.-]{1,200}_tensors/)?"
    r"((?:step[0-9]{1,19}_launch[A-Za-z0-9_.-]{1,230}|[0-9]{6,12}_[A-Za-z0-9_.-]{1,160})\.pt)"
)
_ENDING = re.compile(r"\.(?:log|txt)(?:\.gz)?$")
_FLAGS = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
_PIECE_BYTES = 1 << 20
_HEADS = ("id", "step", "launch", "kernel", "argument", "moment", "dtype", "size", "bytes", "file")


def tensor_list(trace: Trace) -> str:
    """Return a table of all saved tensors for a terminal."""
    found = saved_tensors(trace)
    if not found:
        return "No tensor was saved; record with --level save."
    table = [_HEADS, *(_columns(place) for place in found)]
    return "\n".join(aligned(table, len(_HEADS)))


def tensor_text(trace: Trace, tensor: int) -> str:
    """Return a description of a saved tensor for a terminal. Raises StepscopeError if there is none of this id."""
    place = _find(trace, tensor)
    path = file_of(place)
    lines = [
        f"tensor {place.tensor}: {_argument(place)} {place.moment} {place.kernel or 'a launch'}",
        f"launch {place.launch}, step {_number(place.step)}",
        f"{place.dtype} {shape_text(place.size)}, {format_bytes(place.tensor_bytes)}",
        f"file {path or place.file}: {_state(place)}",
        f"sha256 {place.sha256}",
    ]
    return "\n".join(map(clean, lines))


def copy_tensor(trace: Trace, tensor: int, out: Path, *, force: bool = False) -> int:
    """Copy the file of a saved tensor to `out` and return its size in bytes.

    Raises StepscopeError if there is no such tensor or file, if the file differs from the log's description, and if
    `out` exists and `force` is not set.
    """
    place = _find(trace, tensor)
    if os.path.lexists(out) and not force:
        raise StepscopeError(f"{out} already exists: give another name, or --force.")
    if file_of(place) is None:
        raise StepscopeError(f"Tensor {tensor} has no file that can be opened: {_state(place)}.")
    try:
        source = _open(place)
    except OSError as error:
        raise StepscopeError(f"Tensor {tensor} cannot be read: {file_of(place)}: {error.strerror or error}.") from None
    with source:
        return _copy(source, place, out)


def read_tensor(place: SavedTensorPlace, most_bytes: int) -> bytes | int | None:
    """Return the content of the file of a saved tensor, or its size if it has more than `most_bytes`; None if the file
    is missing or differs from the log's description."""
    try:
        with _open(place) as source:
            size = os.fstat(source.fileno()).st_size
            data = source.read() if size <= most_bytes else None
    except OSError:
        return None
    if data is None:
        return size
    return data if hashlib.sha256(data).hexdigest() == place.sha256 else None


def file_of(place: SavedTensorPlace) -> Path | None:
    """Return the path that the file of a saved tensor must have; None for a name that no recorder gives."""
    found = _FILE.fullmatch(place.file)
    log = Path(place.log_path)
    if found is None or not log.is_absolute():
        return None
    return log.with_name(_ENDING.sub("", log.name) + "_tensors") / found[1]


def _find(trace: Trace, tensor: int) -> SavedTensorPlace:
    place = saved_tensor(trace, tensor) if 0 <= tensor < 2**63 else None
    if place is None:
        raise StepscopeError(f"There is no saved tensor {tensor} in this trace: `stepscope tensor TRACE` lists them.")
    return place


def _open(place: SavedTensorPlace) -> BinaryIO:
    """Open the file. Raises OSError unless it is a plain file in a folder that is not a link."""
    path = file_of(place)
    if path is None:
        raise FileNotFoundError(0, "its name in the log is not one that the recorder gives")
    if not stat.S_ISDIR(os.lstat(path.parent).st_mode):
        raise NotADirectoryError(0, "its folder is a link or not a folder")
    if stat.S_ISLNK(os.lstat(path).st_mode):
        raise OSError(0, "it is a link")
    file = os.fdopen(os.open(path, _FLAGS), "rb")
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(0, "it is not a regular file")
    return file


def _copy(source: BinaryIO, place: SavedTensorPlace, out: Path) -> int:
    """Copy under a temporary name first, so that a file with a wrong digest leaves nothing behind."""
    temporary: str | None = None
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=out.parent, prefix=".stepscope-", delete=False) as file:
            temporary = file.name
            digest, size = hashlib.sha256(), 0
            for piece in _pieces(source):
                digest.update(piece)
                size += file.write(piece)
        if digest.hexdigest() != place.sha256:
            raise StepscopeError(
                f"{file_of(place)} has changed: its sha256 is not that in the log, so nothing was copied."
            )
        os.replace(temporary, out)
        temporary = None
        return size
    except OSError as error:
        raise StepscopeError(f"The file {out} cannot be written: {error.strerror or error}") from None
    finally:
        if temporary is not None:
            with suppress(OSError):
                os.unlink(temporary)


def _pieces(source: BinaryIO) -> Iterator[bytes]:
    while piece := source.read(_PIECE_BYTES):
        yield piece


def _state(place: SavedTensorPlace) -> str:
    """Return ``present``, or the reason why the file cannot be used."""
    try:
        with _open(place) as source:
            digest = hashlib.sha256()
            for piece in _pieces(source):
                digest.update(piece)
    except FileNotFoundError as error:
        return "missing" if error.errno else str(error.strerror)
    except OSError as error:
        return str(error.strerror or error)
    return "present" if digest.hexdigest() == place.sha256 else "changed since it was saved"


def _columns(place: SavedTensorPlace) -> tuple[str, ...]:
    try:
        _open(place).close()
        state = "present"
    except OSError:
        state = "missing"
    texts = (
        str(place.tensor), _number(place.step), str(place.launch), place.kernel or "–", _argument(place), place.moment,
        place.dtype, shape_text(place.size), f"{place.tensor_bytes:,}", state,
    )  # fmt: skip
    return tuple(map(clean, texts))


def _argument(place: SavedTensorPlace) -> str:
    name = place.argument_name or f"argument {place.argument}"
    return name if place.item is None else f"{name}[{place.item}]"


def _number(value: int | None) -> str:
    return "–" if value is None else str(value)
