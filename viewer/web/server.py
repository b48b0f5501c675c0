"""Serves one trace on this machine until Ctrl-C."""

from __future__ import annotations

import ctypes
import errno
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from stepscope.viewer.errors import StepscopeError
from stepscope.viewer.text.source_links import EDITOR

if TYPE_CHECKING:
    import uvicorn
    from starlette.types import ASGIApp

    from stepscope.viewer.store.open_in_background import Building
    from stepscope.viewer.store.trace import Trace
    from stepscope.viewer.web.follow import Current

HOST = "127.0.0.1"
DEFAULT_PORT = 8686
_ARENA_MAX = -8
"""`M_ARENA_MAX` of malloc.h."""


def serve(
    trace: Trace | Current | Building,
    port: int = DEFAULT_PORT,
    source_link: str = EDITOR,
    *,
    opens_browser: bool = False,
) -> None:
    """Serve the trace; a free port is used for `port` 0, and if the default port is taken.

    While the index is still being built, the pages show how far it is. Raises StepscopeError if it cannot be opened.
    """
    from stepscope.viewer.store.open_in_background import Building

    if isinstance(trace, Building):
        from stepscope.viewer.web.building import BuildingApp

        app = BuildingApp(trace, source_link)
        try:
            _run(app, port, opens_browser, app.start)
        finally:
            app.close()
        if app.error is not None:
            raise app.error
        return
    from stepscope.viewer.web.app import create_app

    _run(create_app(trace, source_link), port, opens_browser)


def share_memory() -> None:
    """Let all threads share two arenas of glibc's malloc, because each arena keeps what was freed in it. It has an
    effect only before the first thread starts."""
    with suppress(AttributeError, OSError, TypeError):  # another C library
        ctypes.CDLL(None).mallopt(_ARENA_MAX, 2)


def _run(
    app: ASGIApp, port: int, opens_browser: bool, start: Callable[[Callable[[], None]], None] = lambda stop: None
) -> None:
    """Serve until Ctrl-C, or until the function that `start` gets is called."""
    import uvicorn

    with listen(port) as bound:
        number = bound.getsockname()[1]
        click.echo(f"stepscope dashboard: http://{HOST}:{number}/  (Ctrl-C ends it)")
        click.echo(
            f"To open it from another machine, run there: ssh -L {number}:{HOST}:{number} {socket.gethostname()}"
        )
        if opens_browser:
            # A browser of the terminal returns only when it is closed.
            threading.Thread(target=_open_browser, args=(f"http://{HOST}:{number}/",), daemon=True).start()
        server = uvicorn.Server(configure(app))
        start(lambda: setattr(server, "should_exit", True))
        server.run(sockets=[bound])


def _open_browser(address: str) -> None:
    import webbrowser

    if not webbrowser.open(address):
        click.echo("stepscope: no browser could be started here; open the address above.", err=True)


def warm() -> None:
    """Import the modules that the first page needs."""
    import uvicorn.server  # noqa: F401

    from stepscope.viewer.overview.queries import overview  # noqa: F401
    from stepscope.viewer.store import trace as store_trace  # noqa: F401
    from stepscope.viewer.web import app, render  # noqa: F401

    render.environment()


def ask_first(trace: Trace) -> None:
    """Compute the overview for the first page, which the trace caches; of a long log, the time of steps is left out."""
    from stepscope.viewer.overview.queries.overview import first_page, with_time
    from stepscope.viewer.speed.queries.splits import MOST_DIVIDED

    with suppress(Exception):  # the page reports it
        found = first_page(trace)
        if len(found.steps) <= MOST_DIVIDED:
            with_time(trace, found)


def configure(app: ASGIApp) -> uvicorn.Config:
    import uvicorn

    return uvicorn.Config(
        app,
        loop="asyncio",
        http="h11",
        ws="none",
        lifespan="off",
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=1,
    )


def listen(port: int) -> socket.socket:
    candidates = [port, 0] if port == DEFAULT_PORT else [port]
    problem: OSError | None = None
    for candidate in candidates:
        bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            bound.bind((HOST, candidate))
            bound.listen(64)
        except OSError as error:
            bound.close()
            problem = error
            if candidate != candidates[-1]:
                why = "is in use" if error.errno == errno.EADDRINUSE else f"cannot be opened ({error.strerror})"
                click.echo(f"stepscope: The port {candidate} {why}, so a free one is taken.", err=True)
        else:
            return bound
    raise StepscopeError(f"The port {HOST}:{port} cannot be opened: {problem}; choose another with --port.")
