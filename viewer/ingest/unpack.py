"""Keeps plain copies of logs that are compressed or come from standard input in the user's cache folder."""

from __future__ import annotations

import gzip
import hashlib
import lzma
import os
import re
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from stat import S_ISDIR
from typing import IO, BinaryIO, NamedTuple, cast

from stepscope.viewer.errors import StepscopeError
from stepscope.viewer.ingest.line_prefixes import without

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

_PIECE_BYTES = 1 << 16
_MOST_BYTES = 1 << 20
_GZIP = 16 + zlib.MAX_WBITS
_MOST_XZ_MEMORY = 1 << 28
"""Maximum memory for unpacking an .xz, which a small file could ask for in gigabytes."""
PACKED_ERRORS = (OSError, EOFError, zlib.error, lzma.LZMAError, zstd.ZstdError)
Problems = list[tuple[str, str]]


class PackedForm(NamedTuple):
    open: Callable[[Path], BinaryIO]
    unpack: Callable[[Iterator[bytes], IO[bytes]], str | None]
    """Writes the plain bytes of the pieces as far as possible; returns the problem if they are broken, else None."""


def cache_dir() -> Path:
    """Return the folder of indexes and copies, which is created if missing and never one that others own."""
    for place in (_user_caches, _temporary):
        try:
            folder = place()
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if _is_private(folder) and os.access(folder, os.W_OK):
                return folder
        except (OSError, RuntimeError):  # the user has no home
            continue
    raise StepscopeError("There is no folder for the index: set XDG_CACHE_HOME to a folder that you can write to.")


def _user_caches() -> Path:
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "stepscope"


def _temporary() -> Path:
    return Path(tempfile.gettempdir()) / f"stepscope-{_user()}"


def packed_form(path: Path) -> PackedForm | None:
    """Return the compression of a file, recognised by its first bytes; None for a plain file."""
    with path.open("rb") as file:
        return _form_of(file.read(6))


def unpack_file(path: Path, stat: os.stat_result) -> tuple[Path, Problems]:
    """Return a plain copy of a compressed file, and its problems if it is cut or broken."""
    plain_copy = _plain_copy_of(path, stat)
    if not _is_there(plain_copy):
        with path.open("rb") as file, _Part(plain_copy.parent) as part:
            problem = _unpack(_pieces(file), part.file)
            _keep(part, plain_copy, problem)
    return plain_copy, _problems(plain_copy)


def unpack_stream(stream: BinaryIO) -> tuple[Path, Problems]:
    """Return a plain copy of a stream, and its problems. Equal bytes have the same copy and so the same index."""
    digest = hashlib.sha256()

    def seen(pieces: Iterator[bytes]) -> Iterator[bytes]:
        for piece in pieces:
            digest.update(piece)
            yield piece

    with _Part(_copies_folder()) as part:
        problem = _unpack(seen(_pieces(stream)), part.file)
        plain_copy = _copies_folder() / f"stdin_{digest.hexdigest()[:32]}.log"
        if not _is_there(plain_copy):
            _keep(part, plain_copy, problem)
    return plain_copy, _problems(plain_copy)


def copy_without_prefixes(prefix: re.Pattern[bytes], path: Path, stat: os.stat_result) -> Path:
    """Return a copy of a plain file without the prefixes of a launcher."""
    plain_copy = _plain_copy_of(path, stat, "lines")
    if not _is_there(plain_copy):
        with path.open("rb") as file, _Part(plain_copy.parent) as part:
            part.file.writelines(without(prefix, file))
            _keep(part, plain_copy, None)
    return plain_copy


def plain_copies() -> list[Path]:
    """Return all plain copies; the `st_atime_ns` of each is the time of its last use."""
    return [*_copies_folder().glob("*.log")]


def remove_plain_copy(plain_copy: Path) -> None:
    """Delete a plain copy and the note of its problem. Raises OSError."""
    plain_copy.unlink()
    _broken(plain_copy).unlink(missing_ok=True)


def unpack(stream: BinaryIO, out: IO[bytes]) -> str | None:
    """Write the plain bytes of a stream, compressed or not. Return the problem if it is cut or broken, else None."""
    return _unpack(_pieces(stream), out)


def is_packed(head: bytes) -> bool:
    """Return whether the first bytes of a file show a known compression."""
    return _form_of(head) is not None


class _Part:
    """A temporary file that is deleted unless it is kept."""

    def __init__(self, folder: Path) -> None:
        descriptor, name = tempfile.mkstemp(dir=folder, suffix=".part")
        self.file, self.path = os.fdopen(descriptor, "wb"), Path(name)

    def __enter__(self) -> _Part:
        return self

    def __exit__(self, *error: object) -> None:
        try:
            self.file.close()
        finally:
            self.path.unlink(missing_ok=True)


def _keep(part: _Part, plain_copy: Path, problem: str | None) -> None:
    part.file.close()
    if problem:
        _broken(plain_copy).write_text(problem, "utf-8")
    os.replace(part.path, plain_copy)


def _is_there(plain_copy: Path) -> bool:
    """Return whether the plain copy exists, and mark it as used. Its mtime stays, because the index key contains it."""
    try:
        os.utime(plain_copy, ns=(time.time_ns(), plain_copy.stat().st_mtime_ns))
    except FileNotFoundError:
        return False
    except OSError:
        pass
    return True


def _problems(plain_copy: Path) -> Problems:
    broken = _broken(plain_copy)
    return [("truncated", broken.read_text("utf-8"))] if broken.exists() else []


def _broken(plain_copy: Path) -> Path:
    return plain_copy.with_suffix(".broken")


def _pieces(file: BinaryIO) -> Iterator[bytes]:
    while piece := file.read(_PIECE_BYTES):
        yield piece


def _unpack(pieces: Iterator[bytes], out: IO[bytes]) -> str | None:
    first = next(pieces, b"")
    form = _form_of(first)
    rest = _chained(first, pieces)
    if form is not None:
        return form.unpack(rest, out)
    out.writelines(rest)
    return None


def _chained(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    yield first
    yield from rest


def _unpack_gz(pieces: Iterator[bytes], out: IO[bytes]) -> str | None:
    stream = zlib.decompressobj(_GZIP)
    for piece in pieces:
        while piece.strip(b"\0") if stream.eof else piece:  # zeros may follow the end as padding
            if stream.eof:
                stream = zlib.decompressobj(_GZIP)
            try:
                out.write(stream.decompress(piece, _MOST_BYTES))
            except zlib.error as error:
                return f"the .gz is broken: {error}"
            piece = stream.unconsumed_tail or stream.unused_data
    return None if stream.eof else "the .gz ends too early"


def _unpack_zst(pieces: Iterator[bytes], out: IO[bytes]) -> str | None:
    """Decompress a sequence of frames; skippable frames, as `pzstd` writes them, are empty."""
    stream = zstd.ZstdDecompressor()
    for piece in pieces:
        while piece or not (stream.eof or stream.needs_input):
            if stream.eof:
                stream = zstd.ZstdDecompressor()
            try:
                out.write(stream.decompress(piece, _MOST_BYTES))
            except zstd.ZstdError as error:
                return f"the .zst is broken: {error}"
            piece = stream.unused_data if stream.eof else b""
    return None if stream.eof else "the .zst ends too early"


def _unpack_xz(pieces: Iterator[bytes], out: IO[bytes]) -> str | None:
    """Decompress one stream, as it is in reports."""
    stream = lzma.LZMADecompressor(lzma.FORMAT_XZ, _MOST_XZ_MEMORY)
    for piece in pieces:
        while not stream.eof and (piece or not stream.needs_input):
            try:
                out.write(stream.decompress(piece, _MOST_BYTES))
            except (lzma.LZMAError, EOFError, MemoryError) as error:
                return f"the .xz is broken: {error}"
            piece = b""
    return None if stream.eof else "the .xz ends too early"


def _open_gz(path: Path) -> BinaryIO:
    return cast(BinaryIO, gzip.GzipFile(path, "rb"))


def _open_xz(path: Path) -> BinaryIO:
    return cast(BinaryIO, lzma.LZMAFile(path, "rb"))


def _open_zst(path: Path) -> BinaryIO:
    return cast(BinaryIO, zstd.ZstdFile(path, "rb"))


_GZ, _ZST = PackedForm(_open_gz, _unpack_gz), PackedForm(_open_zst, _unpack_zst)
_XZ = PackedForm(_open_xz, _unpack_xz)


def _form_of(head: bytes) -> PackedForm | None:
    if head[:2] == b"\x1f\x8b":
        return _GZ
    if head[:6] == b"\xfd7zXZ\0":
        return _XZ
    is_frame = head[:4] == b"\x28\xb5\x2f\xfd"
    is_skipped = head[1:4] == b"\x2a\x4d\x18" and 0x50 <= head[0] <= 0x5F
    return _ZST if is_frame or is_skipped else None


def _plain_copy_of(path: Path, stat: os.stat_result, what: str = "") -> Path:
    key = hashlib.sha256(f"{path}\0{stat.st_size}\0{stat.st_mtime_ns}{what}".encode("utf-8", "surrogateescape"))
    return _copies_folder() / f"{key.hexdigest()[:32]}.log"


def _copies_folder() -> Path:
    folder = cache_dir() / "spool"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def _is_private(folder: Path) -> bool:
    """Return whether only this user can access the folder; the rights of others are removed if necessary."""
    if not hasattr(os, "getuid"):
        return True
    stat = folder.lstat()
    if not S_ISDIR(folder.stat().st_mode) or folder.stat().st_uid != os.getuid() or stat.st_uid != os.getuid():
        return False
    if folder.stat().st_mode & 0o077:
        folder.chmod(0o700)
    return True


def _user() -> str:
    return str(os.getuid()) if hasattr(os, "getuid") else os.environ.get("USERNAME", "user")
