"""Copies the records of torch's structured log into the log of stepscope, as torch would have written them.

Source of the format: torch/_logging/_internal.py, `TorchLogsFormatter.format` with `trace=True`.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Callable
from datetime import datetime
from typing import Any

from stepscope.tracer.inductor import compat
from stepscope.tracer.inductor.unrecorded import is_hidden
from stepscope.tracer.schema import log_format

LOGGER = "torch.__trace"
OnRecord = Callable[[bytes, "dict[str, Any]", "str | None"], None]


class StructuredLogTap(logging.Handler):
    """Passes each of torch's structured records on, encoded, with its metadata and payload."""

    def __init__(self, on_record: OnRecord, on_failure: Callable[[str, BaseException], None]) -> None:
        super().__init__(logging.DEBUG)
        self._on_record, self._on_failure = on_record, on_failure

    def emit(self, record: logging.LogRecord) -> None:
        """Pass `record` on. Never raises."""
        try:
            self._emit(record)
        except Exception as error:
            self._on_failure("structured log", error)

    def _emit(self, record: logging.LogRecord) -> None:
        metadata: dict[str, Any] = getattr(record, "metadata", {})
        payload: str | None = getattr(record, "payload", None)
        if _is_about_its_log(metadata) or (is_hidden() and "str" not in metadata):  # later records need its strings
            return
        prefix = log_format.encode_prefix(
            datetime.fromtimestamp(record.created), os.getpid(), _relative(record.pathname), record.lineno
        )
        self._on_record(encode(prefix, metadata, payload), metadata, payload)


def _is_about_its_log(metadata: dict[str, Any]) -> bool:
    """Return whether the record is the one that torch's TORCH_TRACE handler writes when it begins a file.

    Such a record exists only if TORCH_TRACE is set too, and the run record has the version as well.
    """
    artifact = metadata.get("artifact")
    return isinstance(artifact, dict) and artifact.get("name") == "torch_version"


# Both functions replace the list: a thread that is passing a record on iterates over the old one, so it neither skips
# a handler that has moved nor calls one that was added meanwhile.


def add_handler(handler: logging.Handler) -> None:
    """Insert `handler` before the others; torch's own removes itself at the first record if it has nothing to write."""
    logger = logging.getLogger(LOGGER)
    logger.handlers = [handler, *logger.handlers]


def remove_handler(handler: logging.Handler) -> None:
    logger = logging.getLogger(LOGGER)
    logger.handlers = [one for one in logger.handlers if one is not handler]


def encode(prefix: bytes, metadata: dict[str, Any], payload: str | None) -> bytes:
    header = json.dumps(metadata, default=repr).encode()
    body = payload.encode("utf-8", "surrogatepass") if payload is not None else None
    return log_format.encode_record(prefix, header, body)


def known_strings() -> list[bytes]:
    """Return records of the strings that torch interned before the tap was attached."""
    prefix = log_format.encode_prefix(datetime.now(), os.getpid(), "torch/_logging/structured.py", 1)
    return [
        log_format.encode_record(prefix, json.dumps({"str": [text, number]}).encode(), None)
        for text, number in compat.interned_strings().items()
    ]


def _relative(path: str) -> str:
    """Return `path` relative to the longest entry of sys.path that contains it."""
    found = [entry for entry in sys.path if entry and path.startswith(entry.rstrip(os.sep) + os.sep)]
    return path[len(max(found, key=len).rstrip(os.sep)) + 1 :] if found else path
