"""Shares memory with a file: reserves space on the disk, and maps it at a fixed address."""

from __future__ import annotations

import ctypes
import mmap
import os
from contextlib import suppress
from functools import cache
from typing import Any

_MAP_FIXED = 0x10


@cache
def _libc() -> Any:
    library = ctypes.CDLL(None, use_errno=True)
    library.mmap.restype = ctypes.c_void_p
    return library


def map_over(mapped: mmap.mmap, flags: int, descriptor: int, offset: int) -> None:
    """Replace the memory of `mapped` at the same addresses. Raises OSError."""
    address = ctypes.addressof(ctypes.c_char.from_buffer(mapped))
    found = _libc().mmap(
        ctypes.c_void_p(address), ctypes.c_size_t(len(mapped)), mmap.PROT_READ | mmap.PROT_WRITE, flags | _MAP_FIXED,
        descriptor, ctypes.c_long(offset),
    )  # fmt: skip
    if found != address:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def allocate(descriptor: int, first: int, length: int) -> None:
    """Reserve space on the disk, since writing a page for which the disk is full would kill the process."""
    allocate = getattr(os, "posix_fallocate", None)
    if allocate is not None:
        with suppress(OSError):
            allocate(descriptor, first, length)
            return
    zeros, at = memoryview(bytes(length)), 0
    while at < length:
        at += os.pwrite(descriptor, zeros[at:], first + at)
