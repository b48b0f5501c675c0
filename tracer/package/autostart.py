"""Recording without a change of the program: `import torch` calls `autostart` through an entry point.

PyTorch loads the entry points of the group ``torch.backends`` at the end of `import torch` (torch/__init__.py,
`_import_device_backends`), and an exception there breaks that import. So this module imports nothing unless
STEPSCOPE_TRACE is set, and raises nothing. It is installed as ``stepscope/autostart.py``.
"""


def autostart() -> None:
    """Record this process if STEPSCOPE_TRACE is set.

    Raises nothing but KeyboardInterrupt; a failure is one line on standard error."""
    try:
        import os

        if os.environ.get("STEPSCOPE_TRACE"):
            from stepscope.tracer.waiting import wait_for_compile

            wait_for_compile()
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        _warn(error)


def _warn(error: BaseException) -> None:
    try:
        import sys

        print(f"stepscope: nothing is recorded: {error}", file=sys.stderr)  # noqa: T201
    except Exception:
        return
