"""Recognises files of other tools by their first bytes. None of them is unpickled."""

from __future__ import annotations

import re

_RECORD = "record a log with `stepscope run`"
_CHROME = re.compile(
    rb'"traceEvents"\s*:|"schemaVersion"\s*:.{0,400}"deviceProperties"|^\s*\[\s*\{[^{}]{0,400}"ph"\s*:', re.DOTALL
)
_FLIGHT = (b"pg_config", b"nccl_comm", b"collective_seq_id")
DEBUG_MODE = b'"torch.utils._debug_mode.DebugMode.logs"'
"""How the format of a log that DebugMode saved (`DebugMode.save_logs`, torch 2.15) is named at its beginning."""
_PERFETTO_ENDINGS = (".pftrace", ".perfetto-trace", ".perfetto", ".pb")


def what_it_is(head: bytes, name: str) -> str | None:
    """Return what the file with these first, uncompressed bytes is and what to do; None if it is unknown."""
    is_pickle = re.match(rb"\x80[\x02-\x05]", head) is not None
    is_json = head.lstrip()[:1] in (b"{", b"[")
    if (is_pickle or is_json) and any(word in head for word in _FLIGHT):
        return f"a dump of PyTorch's flight recorder: read it with torchfrtrace, and {_RECORD}"
    if is_json and DEBUG_MODE in head:
        return "a log of PyTorch's DebugMode: `stepscope compare` lays it beside another one, or beside a trace"
    if is_pickle and (b"segments" in head or b"device_traces" in head):
        return f"a memory snapshot of PyTorch: open it at pytorch.org/memory_viz, and {_RECORD}"
    if is_pickle:
        return f"a pickle, which is not opened, because opening it would run the code in it: {_RECORD}"
    if is_json and _CHROME.search(head):
        return f"a Chrome trace, as torch.profiler (Kineto) writes them: open it in Perfetto, and {_RECORD}"
    if head.startswith(b"\n") and name.removesuffix(".gz").endswith(_PERFETTO_ENDINGS):
        return f"a Perfetto trace: open it in Perfetto, and {_RECORD}"
    if head.startswith(b"PK\x03\x04") and head[30:39] == b"report.md":
        return "an archive of `stepscope report --zip`: unpack it and give its folder `logs`"
    if head.startswith(b"PK\x03\x04"):
        return f"a zip archive, as torch.save and torch.export write them: {_RECORD}"
    if head.lstrip()[:15].lower() == b"<!doctype html>":
        return "a web page, perhaps a report: open it in a browser, or give the log that it was made from"
    return None
