"""Starts the recorder at the first structured record of a compile, so that it costs other programs nothing."""

from __future__ import annotations

import atexit
import logging
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from stepscope.tracer.inductor.compile_calls import has_called_compile, has_loaded_package
from stepscope.tracer.inductor.structured_log import add_handler, remove_handler
from stepscope.tracer.schema.constants import CALLED, FAILED, LOADED

if TYPE_CHECKING:
    from stepscope.tracer.config import TraceConfig
    from stepscope.tracer.recorder import Recorder


def wait_for_compile(tells: str | None = None, configure: Callable[[], TraceConfig | None] | None = None) -> Waiter:
    """Start a recorder when the first compile begins, as `configure` or else the environment says (`config`).

    `stepscope run` knows by the file at the path `tells` that a recorder waits in the program. At the end of a program
    the file gets the letter `CALLED` if it has called `torch.compile`, `LOADED` if it has loaded a package of
    AOTInductor, and `FAILED` if the recorder could not start. An OSError passes unseen."""
    waiter = Waiter(configure)
    add_handler(waiter)
    if "torch" in sys.modules:  # else it is not imported here
        from stepscope.tracer.inductor.state_calls import watch_and_wait

        watch_and_wait()
    if tells:
        _append(tells, "")
        atexit.register(lambda: _append(tells, _told(waiter)))
    return waiter


def _told(waiter: Waiter) -> str:
    return FAILED * waiter.has_failed + CALLED * has_called_compile() + LOADED * has_loaded_package()


def _append(path: str, text: str) -> None:
    with suppress(OSError), open(path, "a") as file:
        file.write(text)


class Waiter(logging.Handler):
    def __init__(self, configure: Callable[[], TraceConfig | None] | None = None) -> None:
        super().__init__(logging.DEBUG)
        self.recorder: Recorder | None = None
        """The recorder; None before the first compile."""
        self.has_failed = False
        """Whether it could not be started, which was said then."""
        self._configure = configure

    def emit(self, record: logging.LogRecord) -> None:
        self.start(record)

    def start(self, record: logging.LogRecord | None = None) -> None:
        """Start the recorder, with the first structured record if there is one."""
        remove_handler(self)
        try:
            from stepscope.tracer.config import from_environment
            from stepscope.tracer.recorder import Recorder

            config = (self._configure or from_environment)()
            if config is not None:
                self.recorder = Recorder(config, gives_way=True).start(record)
        except Exception as error:
            self.has_failed = True
            print(f"stepscope: nothing is recorded: {error}", file=sys.stderr)  # noqa: T201

    def stop(self) -> None:
        """Wait no longer, and end the recording if it has begun."""
        remove_handler(self)
        if "torch" in sys.modules:
            from stepscope.tracer.inductor.state_calls import stop_waiting

            stop_waiting()
        if self.recorder is not None:
            self.recorder.stop()
