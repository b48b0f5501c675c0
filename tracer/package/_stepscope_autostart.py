"""Recording without a change of the program: `import torch` calls `autostart` through an entry point.

PyTorch loads the entry points of the group ``torch.backends`` at the end of `import torch` (torch/__init__.py,
`_import_device_backends`), and an exception there breaks that import, also one of loading the module. So this module
is not a part of the package `stepscope`: it is found where the user's script is named ``stepscope.py``, and where the
package was removed and its metadata was not. It imports nothing unless STEPSCOPE_TRACE is set, and raises nothing.
It is written for Python 3.8, too, since a folder on PYTHONPATH is read by any Python.
"""

import os
import sys


def autostart():  # type: () -> None
    """Record this process if STEPSCOPE_TRACE is set.

    Raises nothing but KeyboardInterrupt; a failure is one line on standard error."""
    if not os.environ.get("STEPSCOPE_TRACE"):
        return
    try:
        _record()
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        _warn(error)


def _record():  # type: () -> None
    if sys.version_info < (3, 10):  # noqa: UP036
        raise RuntimeError("stepscope needs Python 3.10 or newer")
    _refuse_others()
    from stepscope.tracer.autostart import wait_for_compile

    wait_for_compile()


def _refuse_others():  # type: () -> None
    """Raises ImportError where the name `stepscope` is somebody else's: importing it would run that person's code."""
    from importlib.util import find_spec

    found = find_spec("stepscope")
    if found is None:
        raise ImportError("the package stepscope is not installed, only its entry point")
    folders = found.submodule_search_locations or ()
    if not any(os.path.isfile(os.path.join(folder, "tracer", "autostart.py")) for folder in folders):
        raise ImportError("the name stepscope is taken by " + str(found.origin or list(folders)))


def _warn(error):  # type: (BaseException) -> None
    try:
        sys.stderr.write("stepscope: nothing is recorded: " + str(error) + "\n")
    except Exception:
        return
