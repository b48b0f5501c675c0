"""Builds hostile logs, each placed between records of a healthy run, which must be read completely."""

from __future__ import annotations

import json
import random
from typing import Any

import orjson

from stepscope.tracer.schema.log_format import payload_digest
from stepscope.viewer.ingest.torch_trace.kinds import KNOWN_EVENTS, UNREADABLE
from tests.logs import overflow_log
from tests.logs.synthetic import LogBuilder, compile_records

SCRIPT = (
    "</script></title></textarea><script>alert(1)</script><img src=x onerror=alert(1)>'\"`{{7*7}}\x1b]0;x\x07\u202e"
)
LINKS = (
    "javascript:alert(1)",
    "JaVaScRiPt:alert(1)",
    " javascript:alert(1)",
    "data:text/html,<script>alert(1)</script>",
    "java\nscript:alert(1)",
    "vbscript:x",
    "//evil.example/x",
    "file:///etc/passwd",
)
PATHS = (
    "../../../evil",
    "/etc/evil",
    "..\\..\\evil",
    "C:\\evil",
    "a/../../evil",
    "evil\x00.txt",
    ".",
    "..",
    "",
    " ",
    "x" * 300,
    "~/evil",
    "con",
    "/dev/stdin",
    "%2e%2e%2fevil",
    "{cid}/evil",
)
IDS: dict[str, Any] = {"frame_id": 0, "frame_compile_id": 0, "attempt": 0}
EVENTS = sorted(KNOWN_EVENTS - {UNREADABLE})
ARTIFACTS = (
    "recompile_reasons",
    "dynamo_graph_break_reason",
    "dynamo_error",
    "fx_graph_cache_hit",
    "fx_graph_cache_bypass",
    "aotautograd_cache_miss",
    "cudagraph_skip",
    "torch_version",
    "graph_execution",
    "inductor_collective_schedule",
    "inductor_runtime_and_tensor_meta",
    "inductor_provenance_tracking_node_mappings",
    "triton_kernel_info",
    "inductor_provenance_tracking_kernel_stack_traces",
    "vllm_piecewise_compile_start",
    "aotautograd_view_replay",
    "before_pre_grad_graph",
    "fx_graph_runnable",
    "stepscope_run",
    "stepscope_graph",
    "stepscope_saved_tensor",
)
NOTHINGS: tuple[Any, ...] = ({}, [], None, "", 0)
RANKS: tuple[Any, ...] = (1, -5, "x", 2**70, None, [])
FIELDS = (
    "name",
    "encoding",
    "filename",
    "url",
    "stack",
    "co_name",
    "co_filename",
    "fail_type",
    "fail_reason",
    "expr",
    "restart_reasons",
    "fail_user_frame_filename",
    "cache_bypass_reason",
    "compliant_custom_ops",
    "reason",
    "op",
    "source",
    "symbol",
    "val",
    "vr",
    "prefer",
    "result",
    "method",
    "arguments",
    "sizes",
    "type",
    "id",
    "describer_id",
    "lhs",
    "rhs",
    "user_stack",
    "node_id",
    "frame_locals",
    "sym",
    "parent",
    "loc",
    "line",
    "recompile_reason",
    "guards",
    "code",
)


def hostile_logs() -> dict[str, bytes]:
    """Return the hostile bytes between the healthy records, by name."""
    return {
        "scripts": _everywhere(SCRIPT),
        "links": b"".join(_event("link", {"name": f"see {url}", "url": url}) for url in LINKS),
        "paths": _paths(),
        "string_ids": b"".join(
            _event("str", [SCRIPT, number]) for number in (4_000_000_000, 2**63, 2**200, -1, 1.5, None)
        )
        + _event("dynamo_start", {"stack": [{"line": 1, "name": 4_000_000_000, "filename": 4_000_000_000}]}),
        "threads": b"".join(
            b'V0314 09:26:54.000000 %s a.py:%s] {"artifact": {"name": "x", "encoding": "string"}}\n' % (pid, line)
            for pid in (b"9" * 60, b"0", b"18446744073709551616")
            for line in (b"1", b"9" * 60)
        ),
        "dates": b"".join(
            b'V%s a.py:1] {"dynamo_start": {"stack": []}, "frame_id": 3, "frame_compile_id": 0}\n' % prefix
            for prefix in (
                b"0000 00:00:00.000000 1",
                b"9999 99:99:99.999999 1",
                b"0229 23:59:60.000000 1",
                b"1231 23:59:59.999999999 1",
                b"0101 00:00:00.000000000 1",
            )
        ),
        "nul_bytes": _everywhere("a\x00b") + _event("link", {}, b"\x00" * 4_096) + b"\x00" * 4_096 + b"\n",
        "not_utf8": _event("dump_file", {"name": "x"}, b"\xff\xfe\x80")
        + bytes(range(256))
        + b"\nV"
        + bytes(range(255, -1, -1)),
        "lone_surrogates": b'V0314 09:26:54.000000 1 a:1] {"artifact": {"name": "\\ud800", "encoding": "\\udfff"}}\n',
        "deep_json": _deep(),
        "missing_fields": b"".join(_event(event, value, b"{}") for event in EVENTS for value in NOTHINGS),
        "wrong_payloads": b"".join(
            _artifact(name, text) for name in ARTIFACTS for text in (b"", b"[]", b"{", b"0", b"\xff")
        ),
        "wrong_md5": _event("dump_file", {"name": "x"}, b"abc").replace(payload_digest(b"abc").encode(), b"0" * 32),
        "arrays": b"".join(
            b"V0314 09:26:54.000000 1 a.py:1] %s\n" % text for text in (b"[1, 2]", b"[]", b"null", b'"x"', b"1")
        ),
        "by_event": _interleaved(lines=False),
        "by_line": _interleaved(lines=True),
        "two_ranks": b'V0314 09:26:54.000000 1 a.py:1] {"link": {}, "rank": 0, "rank": 7}\n'
        + b"".join(_event("link", {"name": "n", "url": "u"}, rank=rank) for rank in RANKS),
        "half_guards": _event("guard_added", {"stack": []})
        + _event("missing_fake_kernel", {})
        + _event("mismatched_fake_kernel", {"reason": SCRIPT})
        + _event("propagate_real_tensors_provenance", {"result": {}})
        + _event("compilation_metrics", {"fail_type": SCRIPT}),
        "absurd_numbers": b"".join(
            _line(b'{"%s": {%s}, "frame_id": 0, "frame_compile_id": 0}' % (event.encode(), _numbers(number)))
            for event in ("compilation_metrics", "create_symbol", "chromium_event", "describe_tensor")
            for number in (
                b"1e400",
                b"-1e400",
                b"NaN",
                b"9" * 400,
                b"9" * 9_000,
                b"-0.0",
                b"1E-400",
                b"170141183460469231731687303715884105728",
            )
        ),
        "line_ends": b"\r\n\r\r\n\n\t\n\t\t\n"
        + _event("dump_file", {"name": "x"}, b"a\r\nb\rc").replace(b"\n", b"\r\n"),
        "only_tabs": b"\tpayload of nothing\n" * 40 + b"\xef\xbb\xbf",
        "many_frames": b"".join(
            _event("dynamo_start", {"stack": []}, frame_id=number, frame_compile_id=2**52)
            for number in range(0, 2**53, 2**48)
        ),
        "spans": _spans(),
    }


def healthy() -> LogBuilder:
    """Return a run with launches, values and a compile."""
    return overflow_log.recorded()


def log_of(middle: bytes) -> bytes:
    """Return a log with `middle` between healthy records, of which the following ones start on a new line."""
    after = compile_records(LogBuilder(), frame=77).artifact(
        "after_all", b'{"sound": true}', frame_id=77, frame_compile_id=0
    )
    return healthy().data + middle + (b"" if middle.endswith(b"\n") else b"\n") + after.data


def _event(event: str, value: Any, payload: bytes | None = None, **envelope: Any) -> bytes:
    header = {event: value, **IDS, **envelope}
    if payload is not None:
        header["has_payload"] = payload_digest(payload)
    body = b"" if payload is None else b"\t" + payload.replace(b"\n", b"\n\t") + b"\n"
    return _line(json.dumps(header).encode("utf-8", "surrogatepass")) + body


def _line(header: bytes) -> bytes:
    return b"V0314 09:26:54.000000 4711 torch/x.py:1] " + header + b"\n"


def _artifact(name: str, payload: bytes, encoding: str = "json") -> bytes:
    return _event("artifact", {"name": name, "encoding": encoding}, payload)


def _everywhere(text: str) -> bytes:
    """Put `text` into every field of every event, into every payload, and into names."""
    fields = dict.fromkeys(FIELDS, text)
    deep = {
        **fields,
        "stack": [{"line": 1, "name": text, "filename": text, "loc": text}],
        "guards": [fields],
        "args": fields,
    }
    payload = orjson.dumps({text: [deep, text]}) + f"\n# {text}\ndef call(args):\n    {text}\n".encode()
    parts = [_event(event, value, payload) for event in EVENTS for value in (deep, fields, text)]
    parts += [_artifact(name, body, text) for name in (*ARTIFACTS, text) for body in (payload, orjson.dumps(deep))]
    parts.append(_event(text, deep, payload))
    parts.append(_event("link", {"name": text, "url": f"https://example.com/{text}"}))
    return b"".join(parts) + text.encode() + b"\n"


def _paths() -> bytes:
    parts = []
    for name in PATHS:
        parts += [
            _event(event, {"name": name}, b"owned") for event in ("dump_file", "graph_dump", "optimize_ddp_split_child")
        ]
        parts += [_artifact(name, b"owned", "string"), _event("inductor_output_code", {"filename": name}, b"owned")]
        parts.append(_event("artifact", {"name": "x", "encoding": "string"}, b"owned", has_payload=name))
    return b"".join(parts)


def _deep() -> bytes:
    nested = b'{"a":' * 100_000 + b"1" + b"}" * 100_000
    lists = b"[" * 100_000 + b"]" * 100_000
    return _line(b'{"artifact": ' + nested + b"}") + b"".join(
        _artifact(name, text)
        for name in ("recompile_reasons", "stepscope_run", "note")
        for text in (nested, lists, b"[" * 100_000)
    )


def _interleaved(*, lines: bool) -> bytes:
    one, two = (compile_records(LogBuilder(pid=pid), frame=pid).data for pid in (1, 2))
    pieces = (
        [one.split(b"\n"), two.split(b"\n")]
        if lines
        else [[b"V" + record.rstrip(b"\n") for record in data.split(b"\nV")] for data in (one[1:], two[1:])]
    )
    pick, mixed = random.Random(7), []
    while any(pieces):
        side = pieces[pick.randrange(2)] or next(filter(None, pieces))
        mixed.append(side.pop(0))
    return b"\n".join(mixed) + b"\n"


def _numbers(number: bytes) -> bytes:
    names = ("duration_us", "start_time_us", "co_firstlineno", "ts", "dur", "tid", "id", "val", "dim", "guard_count")
    return b", ".join(b'"%s": %s' % (name.encode(), number) for name in names)


def _spans() -> bytes:
    spans: list[Any] = [
        {"name": SCRIPT, "ph": phase, "ts": ts, "tid": SCRIPT, "pid": [], "args": {SCRIPT: SCRIPT}}
        for phase in ("B", "E", "X", "i", "", 7)
        for ts in (-1, 0, 2**62, 1e300, "x", None)
    ]
    return b"".join(_event("chromium_event", {}, orjson.dumps(span)) for span in spans)
