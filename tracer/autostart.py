"""Recording with no change of the program: `import torch` calls `autostart` through an entry point.

The entry point group ``torch.backends`` is read at the end of `import torch`
(torch/__init__.py, `_import_device_backends`); an exception there would break that import.
"""

from __future__ import annotations

import logging
import os
import sys


def autostart() -> None:
    """Wait for the first structured record of a compile if STEPSCOPE_TRACE is set; else do nothing. Never raises."""
    if not os.environ.get("STEPSCOPE_TRACE"):
        return
    try:
        from tracer.inductor.structured_log import LOGGER

        logging.getLogger(LOGGER).addHandler(_Waiter(logging.DEBUG))
    except Exception as error:
        _say(error)


class _Waiter(logging.Handler):
    """Starts the recorder at the first structured record: a program that never compiles pays nothing."""

    def emit(self, record: logging.LogRecord) -> None:
        logging.getLogger(record.name).removeHandler(self)
        try:
            from tracer.config import from_environment
            from tracer.recorder import Recorder

            config = from_environment()
            if config is not None:
                Recorder(config).start(record)
        except Exception as error:
            _say(error)


def _say(error: Exception) -> None:
    print(f"stepscope: nothing is recorded: {error}", file=sys.stderr)  # noqa: T201
