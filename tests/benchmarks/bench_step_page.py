"""The page of a step of long runs: ``python -m tests.benchmarks.bench_step_page [MILLIONS] [--folder FOLDER]``.

There are three runs with five value rows a launch: a million launches in steps of 100, a million in one step, and
MILLIONS (10) in steps of 100. Their indexes and findings are there. Prints for each the CPU time of `stepscope serve`
from the command line until it has served the page, and the time from a navigation to the picture of the step in
Chromium. For the one step it prints how long a turn of the wheel takes until it is painted, and until finer data is;
for the first run the CPU time of panels and of `/values`. Logs and indexes are kept in FOLDER if it is given.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING

from playwright.sync_api import sync_playwright

from stepscope.viewer.store.open import open_trace
from tests.benchmarks.bench_index import LAUNCHES, write_log
from tests.benchmarks.bench_ingest import run as run_process
from tests.benchmarks.bench_load import TICKS, peak_mb
from tests.benchmarks.bench_open import free_port
from tests.benchmarks.bench_viewer import Asker
from tests.browser.conftest import ARGUMENTS, chromium

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

MILLION = 1_000_000
ROUNDS, PICTURES, TURNS, PANELS = 5, 5, 40, 60
GIVE_UP_S = 300
STEPSCOPE = [sys.executable, "-m", "stepscope"]
WATCH = """
(() => {
  const found = (window.benchmark = { picture: 0, turns: [] });
  const painted = (then) => requestAnimationFrame(() => setTimeout(() => then(performance.now())));
  const look = () => document.querySelector(".view-span")?.textContent
    ? painted((at) => (found.picture = at)) : requestAnimationFrame(look);
  requestAnimationFrame(look);
  addEventListener("wheel", () => {
    const turn = { at: performance.now(), painted: 0, finer: 0 };
    found.turns.push(turn);
    painted((at) => (turn.painted = at));
  }, { capture: true });
  new PerformanceObserver((list) => {
    for (const entry of list.getEntries())
      if (entry.name.includes("timeline.json")) painted((at) => (found.turns.at(-1).finer = at));
  }).observe({ type: "resource" });
})()
"""
"""Notes when the first picture is painted; of each turn of the wheel when it and the finer data for it are painted."""


def cpu_of_all_s(pid: int) -> float:
    """Return the user and system seconds of a process, and of its children that have ended."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, words[11:15])) / TICKS


@contextmanager
def served(log: Path, cache: Path, path: str) -> Iterator[tuple[str, int, float]]:
    """Serve a log; yield its address, the process and its CPU time when it had served the page at `path`."""
    port = free_port()
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    command = [*STEPSCOPE, "serve", str(log), "--port", str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environment) as server:
        try:
            address = f"http://127.0.0.1:{port}"
            wait_for(address + path)
            yield address, server.pid, cpu_of_all_s(server.pid)
        finally:
            server.terminate()


def wait_for(address: str) -> None:
    end = monotonic() + GIVE_UP_S
    while monotonic() < end:
        try:
            with urllib.request.urlopen(address, timeout=GIVE_UP_S) as page:
                page.read()
                return
        except OSError:  # it does not listen yet, or opens the index
            sleep(0.02)
    raise SystemExit(f"{address} was not served")


def picture_ms(page: Page, address: str) -> float:
    """Return the milliseconds from the navigation until the picture of a step is painted."""
    page.goto(address)
    page.wait_for_function("benchmark.picture > 0", timeout=1000 * GIVE_UP_S)
    found: float = page.evaluate("benchmark.picture")
    return found


def turn_the_wheel(page: Page) -> tuple[list[float], list[float]]:
    """Zoom into places of the timeline and out again; return the milliseconds until that and finer data is painted."""
    chance = random.Random(1)
    box = page.locator(".timeline-box").bounding_box()
    assert box is not None
    for _ in range(TURNS):
        page.mouse.move(box["x"] + box["width"] * chance.uniform(0.2, 0.9), box["y"] + 90)
        page.mouse.wheel(0, chance.choice([-240, -240, -240, 480]))
        page.wait_for_timeout(600)
    turns = page.evaluate("benchmark.turns")
    painted = [turn["painted"] - turn["at"] for turn in turns if turn["painted"]]
    return painted, [turn["finer"] - turn["at"] for turn in turns if turn["finer"]]


def spread(values: Sequence[float]) -> str:
    """Return the median and the 95th percentile."""
    if not values:
        return "never"
    ordered = sorted(values)
    return f"median {statistics.median(ordered):.0f} ms, p95 {ordered[round(0.95 * (len(ordered) - 1))]:.0f} ms"


def show(name: str, log: Path, cache: Path, steps: int, browser: Browser) -> None:
    """Print the figures of one run, whose index and findings are made first."""
    run_process([*STEPSCOPE, "summary", str(log)], cache)
    used = []
    for _ in range(ROUNDS):
        with served(log, cache, f"/steps/{steps // 2}?log=0") as (_, _, cpu_s):
            used.append(cpu_s)
    print(f"{name}: {statistics.median(used):.2f} s of CPU to the page of a step", flush=True)
    with served(log, cache, f"/steps/{steps - 1}?log=0") as (address, pid, _):
        page = browser.new_page(viewport={"width": 1600, "height": 900})
        page.add_init_script(WATCH)
        picture_ms(page, f"{address}/steps/{steps - 1}?log=0&round=0")
        pictures = [
            picture_ms(page, f"{address}/steps/{steps * i // 7}?log=0&round={i}") for i in range(1, 1 + PICTURES)
        ]
        print(f"  picture of the step: {spread(pictures)}, load {os.getloadavg()[0]:.1f}", flush=True)
        if steps == 1:
            painted, finer = turn_the_wheel(page)
            print(f"  wheel to paint: {spread(painted)}; to finer data: {spread(finer)}")
        page.close()
        print(f"  largest memory of the server: {peak_mb(pid):.0f} MB", flush=True)


def show_answers(log: Path, cache: Path, launches: int) -> None:
    """Print the CPU time of panels and of `/values` without a server."""
    os.environ["XDG_CACHE_HOME"] = str(cache)
    chance = random.Random(1)
    with open_trace(log) as trace:
        asker = Asker(trace)
        asker.ask("/values.json")
        panels = [asker.ask(f"/launches/{chance.randrange(launches)}.json")[0] for _ in range(PANELS)]
        first, *others = [asker.ask("/values")[0] for _ in range(ROUNDS)]
        asker.close()
    print(f"  panel of a launch: {statistics.median(panels[PANELS // 6 :]):.1f} ms of CPU")
    print(f"  /values: {first:.0f} ms of CPU at first, then {statistics.median(others):.0f} ms")


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("millions", nargs="?", type=float, default=10.0)
    parser.add_argument("--folder", type=Path)
    asked = parser.parse_args()
    many = int(asked.millions * MILLION)
    runs: dict[str, tuple[int, bool]] = {
        f"{MILLION:,} launches": (MILLION, False),
        f"{MILLION:,} launches in one step": (MILLION, True),
        f"{many:,} launches": (many, False),
    }
    with tempfile.TemporaryDirectory() as text:
        folder = asked.folder or Path(text)
        for name, (launches, one_step) in runs.items():
            log = folder / f"{launches}{'_in_one_step' if one_step else ''}.log"
            if not log.exists():
                write_log(log, launches, one_step=one_step)
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(executable_path=chromium(), args=ARGUMENTS)
                show(name, log, folder / "cache", 1 if one_step else launches // LAUNCHES, browser)
                browser.close()
            if launches == MILLION and not one_step:
                show_answers(log, folder / "cache", launches)
    return 0


if __name__ == "__main__":
    sys.exit(main())
