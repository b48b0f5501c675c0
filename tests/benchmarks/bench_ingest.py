"""The same large logs read by stepscope and by tlparse: ``python -m tests.benchmarks.bench_ingest [MB ...]``.

A log is made of a sample log (STEPSCOPE_SAMPLES, or ``shared/torch_trace_logs`` beside the checkout; without them of a
made-up one): repeated to the size asked for, 100 and 1,000 MB unless told, each time with new frame ids. Each program
reads it in a process of its own, one after the other. What is compared is CPU: user and system seconds of the process
and its children. Of the largest log the pages are asked for too.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import orjson

from stepscope.viewer.web import registry
from tests.benchmarks.bench_open import ROOT, free_port, wait_for_page
from tests.logs.synthetic import WRAPPER, LogBuilder

SAMPLE = "multi_rank_logs/dedicated_log_torch_trace_rank_1.log"
MEGABYTES = (100.0, 1000.0)
FRAMES_EACH = 1000
EACH_ROUTE = 3
STARTS = 5
SLOW_MS = 300.0
_FRAME = re.compile(rb'("frame_id": ?)(\d+)')
_INGEST = "import sys; from stepscope.viewer.store.open import open_trace; print(open_trace(sys.argv[1]).index_bytes)"


class Used(NamedTuple):
    """What a process took."""

    cpu_s: float
    wall_s: float
    peak_bytes: int
    output: str


def sample() -> tuple[str, bytes]:
    """Name and bytes of the log that is repeated."""
    samples = Path(os.environ.get("STEPSCOPE_SAMPLES", ROOT.parent / "shared" / "torch_trace_logs"))
    path = samples / SAMPLE
    return (path.name, path.read_bytes()) if path.is_file() else ("a made-up log", made_up())


def made_up() -> bytes:
    """Compiles with what most of a log consists of: chromium events, caches, metrics, graphs and generated code."""
    log = LogBuilder()
    for frame in range(20):
        ids: dict[str, Any] = {"frame_id": frame, "frame_compile_id": 0, "attempt": 0}
        compile_id = f"{frame}/0"
        log.torch("dynamo_start", {"stack": [{"line": 7, "name": "step", "filename": 0, "loc": "y = model(x)"}]}, **ids)
        for number in range(36):
            for phase in "BE":
                event = {
                    "name": f"phase_{number % 9}", "ts": 1_773_480_413_000_000.0 + frame * 1000 + number,
                    "args": {"compile_id": compile_id, "reason": "x" * 100}, "ph": phase, "cat": "dynamo_timed",
                    "tid": 0, "pid": 0,
                }  # fmt: skip
                log.torch("chromium_event", {}, json.dumps(event, indent=0).encode(), **ids)
        cache = {
            "key": "f" * 52,
            "cache_state": "miss",
            "components": [f"[{i}] a component of the key" for i in range(900)],
        }
        log.torch("artifact", {"name": "fx_graph_cache_miss", "encoding": "json"}, orjson.dumps(cache), **ids)
        log.torch("inductor_output_code", {"filename": f"/tmp/{frame}.py"}, WRAPPER.encode() * 4, **ids)
        log.torch("compilation_metrics", {"compile_id": compile_id, "co_name": "step", "graph_op_count": 12}, **ids)
    return log.data


def write_repeated(text: bytes, path: Path, size: int) -> int:
    """A log of at least `size` bytes; returns its bytes. Only header lines change, so every md5 stays right."""
    lines = text.splitlines(keepends=True)
    with path.open("wb") as file:
        times = 0
        while file.tell() < size:
            by = times * FRAMES_EACH
            file.writelines(_later(line, by) if line.startswith(b"V") else line for line in lines)
            times += 1
        return file.tell()


def _later(header: bytes, by: int) -> bytes:
    return _FRAME.sub(lambda found: found[1] + b"%d" % (int(found[2]) + by), header)


def run(command: list[str], cache: Path) -> Used:
    """Run a command to its end. Raises SystemExit when it fails."""
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    start = time.perf_counter()
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=environment)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        text = output.read().decode("utf-8", "replace")
    if process.returncode:
        raise SystemExit(f"{command[0]} failed:\n{text}")
    unit = 1 if sys.platform == "darwin" else 1024
    return Used(used.ru_utime + used.ru_stime, time.perf_counter() - start, used.ru_maxrss * unit, text)


def compare(log: Path, size: int, folder: Path) -> None:
    """Print what each of both took, and the ratios."""
    ours = run([sys.executable, "-c", _INGEST, str(log)], folder / "cache")
    index_bytes = int(ours.output.split()[-1])
    print(f"{size / 1e6:,.0f} MB, load {os.getloadavg()[0]:.1f}")
    _print("stepscope", ours, size)
    print(f"  {'index':<12}{index_bytes / 1e6:8.1f} MB     {index_bytes / size:5.3f} of the log")
    tlparse = shutil.which("tlparse", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
    if tlparse is None:
        print("  tlparse is not installed: no ratio")
        return
    theirs = run([tlparse, str(log), "-o", str(folder / "tlparse"), "--no-browser"], folder)
    _print("tlparse", theirs, size)
    print(f"  CPU of stepscope to tlparse: {ours.cpu_s / theirs.cpu_s:.3f}, 1/{theirs.cpu_s / ours.cpu_s:.1f}")
    shutil.rmtree(folder / "tlparse")


def _print(name: str, used: Used, size: int) -> None:
    print(
        f"  {name:<12}{used.cpu_s:8.2f} s of CPU, {size / 1e6 / used.cpu_s:.1f} MB in each; {used.wall_s:.2f} s;"
        f"  peak memory {used.peak_bytes / 1e6:6.0f} MB, {used.peak_bytes / size:.3f} of the log"
    )


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [value for name, value in attrs if tag == "a" and name == "href" and value and value[0] == "/"]


class Visit(NamedTuple):
    """A page that was asked for twice, the second time unless said otherwise."""

    ms: float
    cpu_ms: float
    """Of the server."""
    first_ms: float
    address: str


@contextmanager
def served(log: Path, cache: Path) -> Iterator[tuple[float, float, int, subprocess.Popen[bytes]]]:
    """Seconds and seconds of CPU from the command line to the first page, its port, and the process that serves it."""
    port, stepscope = free_port(), Path(sys.executable).parent / "stepscope"
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    start = time.perf_counter()
    server = subprocess.Popen(
        [str(stepscope), "serve", str(log), "--port", str(port)], stdout=subprocess.DEVNULL, env=environment
    )
    try:
        wait_for_page(port, server)
        yield time.perf_counter() - start, _cpu_ms(server.pid) / 1e3, port, server
    finally:
        server.terminate()
        server.wait()


def pages(log: Path, cache: Path) -> None:
    """Print how long the first page takes from the command line, and how long the slowest of all take."""
    with served(log, cache):  # Python compiles modules, and Jinja templates, the first time that they are used.
        pass
    starts = []
    for _ in range(STARTS):
        with served(log, cache) as (seconds, cpu_s, port, server):
            starts.append((seconds, cpu_s))
            visits = _visit_all(f"http://127.0.0.1:{port}", server.pid) if len(starts) == STARTS else []
    seconds, cpu_s = (statistics.median(column) for column in zip(*starts, strict=True))
    print(
        f"first page, index there: {seconds:.2f} s from the command line, {cpu_s:.2f} s of CPU (middle of {STARTS};"
        f" {min(starts)[0]:.2f} to {max(starts)[0]:.2f} s)"
    )
    visits.sort(reverse=True)
    slow = [visit for visit in visits if visit.ms > SLOW_MS]
    print(f"{len(visits)} pages, {len(slow)} of them over {SLOW_MS:.0f} ms; load {os.getloadavg()[0]:.1f}")
    for visit in slow or visits[:3]:
        print(
            f"  {visit.ms:6.0f} ms, {visit.cpu_ms:.0f} ms of the server's CPU, the first time {visit.first_ms:.0f} ms:"
            f"  {visit.address}"
        )


def _visit_all(base: str, server: int) -> list[Visit]:
    """Some pages of every route, found from link to link."""
    counts = {page.path: 0 for page in registry.pages()}
    patterns = {path: re.compile(re.sub(r"\{\w+\}", "[^/]+", path)) for path in counts}
    waiting, seen, visits = [path for path in counts if "{" not in path], set[str](), []
    while waiting:
        address = waiting.pop(0)
        route = next((path for path, pattern in patterns.items() if pattern.fullmatch(urlsplit(address).path)), None)
        if route is None or address in seen or counts[route] >= EACH_ROUTE:
            continue
        seen.add(address)
        try:
            first_ms, _ = _get(base + address)
            before_ms = _cpu_ms(server)
            ms, body = _get(base + address)
        except urllib.error.HTTPError as error:
            if error.code != 404:
                raise
            continue
        visits.append(Visit(ms, _cpu_ms(server) - before_ms, first_ms, address))
        counts[route] += 1
        links = _Links()
        links.feed(body.decode())
        waiting += dict.fromkeys(link.partition("#")[0] for link in links.found)
    missing = [route for route, count in counts.items() if not count]
    if missing:
        print(f"this log has no page of {', '.join(missing)}")
    return visits


def _cpu_ms(process: int) -> float:
    """CPU that a process has used, to 10 ms; NaN where Linux does not tell."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return float("nan")
    return (int(fields[11]) + int(fields[12])) * 1000 / os.sysconf("SC_CLK_TCK")


def _get(url: str) -> tuple[float, bytes]:
    start = time.perf_counter()
    with urllib.request.urlopen(url, timeout=60) as answer:
        body: bytes = answer.read()
    return (time.perf_counter() - start) * 1e3, body


def main() -> int:
    sizes = [float(size) for size in sys.argv[1:]] or list(MEGABYTES)
    name, text = sample()
    print(f"{name}, {len(text) / 1e6:.2f} MB, repeated with new frame ids")
    for megabytes in sizes:
        with tempfile.TemporaryDirectory() as folder:
            log = Path(folder, "repeated.log")
            size = write_repeated(text, log, int(megabytes * 1e6))
            compare(log, size, Path(folder))
            if megabytes == max(sizes):
                pages(log, Path(folder, "cache"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
