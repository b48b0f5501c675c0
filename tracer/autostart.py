"""Starts the recorder at the first structured record of a compile, so that it costs other programs nothing."""

from __future__ import annotations

import logging
import sys

from stepscope.tracer.inductor.structured_log import add_handler, remove_handler


def wait_for_compile() -> None:
    """Start the recorder that the environment configures (`stepscope.tracer.config`) when the first compile begins."""
    add_handler(_Waiter(logging.DEBUG))


class _Waiter(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        remove_handler(self)
        try:
            from stepscope.tracer.config import from_environment
            from stepscope.tracer.recorder import Recorder

            config = from_environment()
            if config is not None:
                Recorder(config, gives_way=True).start(record)
        except Exception as error:
            print(f"stepscope: nothing is recorded: {error}", file=sys.stderr)  # noqa: T201
