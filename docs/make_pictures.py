"""Takes the pictures in docs/pictures: it records the demo and the programs in docs/examples, and opens their pages.

python docs/make_pictures.py               # all of them (minutes)
python docs/make_pictures.py leak crash    # these

The pictures are 1,200 pixels wide and have at most 256 colours. Chromium is needed.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from shutil import copy
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Literal
from urllib.error import URLError
from urllib.request import urlopen

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

ROOT = Path(__file__).resolve().parents[1]
PICTURES, EXAMPLES, DEMO = ROOT / "docs" / "pictures", ROOT / "docs" / "examples", ROOT / "tracer" / "demo.py"
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
             "--disable-background-networking", "--disable-component-update"]  # fmt: skip
WIDTH, PATIENCE_S, PROGRAM_S = 1200, 60, 600


@dataclass(frozen=True)
class Picture:
    """One picture: the program that is recorded, the options of the recording, and the page that is shown."""

    program: Path
    address: str
    height: int
    """Height of the window in pixels; the page is cut there."""
    options: tuple[str, ...] = ()
    click: str | None = None
    """A selector of what is clicked before the picture is taken."""
    report: tuple[str, ...] | None = None
    """Options of `stepscope report`; the picture then shows the report."""
    theme: Literal["light", "dark"] = "light"


VALUES = ("--level", "values")
PICTURES_OF = {
    "overview": Picture(DEMO, "/", 965, VALUES),
    "step": Picture(DEMO, "/", 1060, VALUES, click="main a[href*='launch=']"),
    "step-dark": Picture(DEMO, "/", 1060, VALUES, click="main a[href*='launch=']", theme="dark"),
    "memory": Picture(DEMO, "/graphs/0/memory", 1060, VALUES),
    "ticket": Picture(DEMO, "", 590, VALUES, report=("--redact",)),
    "leak": Picture(EXAMPLES / "leak.py", "/memory", 740),
    "wrong-numbers": Picture(EXAMPLES / "wrong_numbers.py", "/", 312, (*VALUES, "--verify-before")),
    "attention": Picture(EXAMPLES / "attention.py", "/", 520, VALUES),
    "in-place": Picture(EXAMPLES / "in_place.py", "/", 420, VALUES),
    "crash": Picture(EXAMPLES / "crash.py", "/", 735, ("--crash",)),
    "recompiles": Picture(EXAMPLES / "recompiles.py", "/recompiles", 866),
    "graph-breaks": Picture(EXAMPLES / "graph_breaks.py", "/graph-breaks", 866),
    "slow-compile": Picture(DEMO, "/compile-time", 960, VALUES),
    "ranks": Picture(EXAMPLES / "ranks.py", "/ranks", 640),
}


def main(wanted: list[str]) -> None:
    from playwright.sync_api import sync_playwright

    unknown = set(wanted) - set(PICTURES_OF)
    if unknown:
        sys.exit(f"There is no picture named {', '.join(sorted(unknown))}; there are {', '.join(PICTURES_OF)}.")
    chromium = os.environ.get("STEPSCOPE_CHROMIUM", "/usr/bin/chromium")
    with TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=ARGUMENTS)
        for name in wanted or PICTURES_OF:
            take(browser, PICTURES_OF[name], Path(folder), PICTURES / f"{name}.png")
            print(PICTURES / f"{name}.png")  # noqa: T201
        browser.close()


def take(browser: Browser, picture: Picture, folder: Path, target: Path) -> None:
    trace = recorded(picture, folder)
    page = browser.new_page(viewport={"width": WIDTH, "height": picture.height}, color_scheme=picture.theme)
    if picture.report is not None:
        report = trace / "report.html"
        stepscope("report", str(trace), "-o", str(report), *picture.report)
        show(page, report.as_uri(), None)
        page.screenshot(path=target)
    else:
        with served(trace) as address:
            show(page, address + picture.address, picture.click)
            page.screenshot(path=target)
    page.close()
    shrink(target)


def recorded(picture: Picture, folder: Path) -> Path:
    """Return the trace of the program, recorded once for all pictures of it. The program's file is named train.py."""
    place = folder / "-".join([picture.program.stem, *picture.options])
    trace = place / "trace"
    if not trace.is_dir():
        place.mkdir(parents=True)
        copy(picture.program, place / "train.py")
        stepscope("run", "--out", str(trace), "--fresh-cache", *picture.options, "--", "python", "train.py", cwd=place)
    return trace


def show(page: Page, address: str, click: str | None) -> None:
    page.goto(address, wait_until="networkidle")
    if click is not None:
        page.locator(click).first.click()
        page.wait_for_load_state("networkidle")
    page.wait_for_timeout(500)


def stepscope(*arguments: str, cwd: Path | None = None) -> None:
    """Run a command of stepscope, with the Python of this script as `python`; the recorded program may fail."""
    here = os.environ | {"PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])}
    command = [sys.executable, "-m", "stepscope", *arguments]
    subprocess.run(command, cwd=cwd, env=here, check=False, stdout=subprocess.DEVNULL, timeout=PROGRAM_S)


@contextmanager
def served(trace: Path) -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "stepscope", "serve", str(trace), "--port", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        wait_for(f"http://127.0.0.1:{port}")
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(PATIENCE_S)


def wait_for(address: str) -> None:
    """Wait until the server answers. Raises URLError if it does not within a minute."""
    ends = time.monotonic() + PATIENCE_S
    while True:
        try:
            urlopen(address, timeout=PATIENCE_S).close()
        except URLError:
            if time.monotonic() > ends:
                raise
            time.sleep(0.1)
        else:
            return


def shrink(picture: Path) -> None:
    """Reduce the colours of a picture, so that the repository stays small."""
    from PIL import Image

    with Image.open(picture) as image:
        reduced = image.convert("RGB").quantize(256, Image.Quantize.FASTOCTREE)
    reduced.save(picture, optimize=True)


if __name__ == "__main__":
    main(sys.argv[1:])
