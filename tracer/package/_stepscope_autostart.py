"""Records programs without changes to them: `import torch` calls `autostart` through an entry point.

PyTorch loads the entry points of the group ``torch.backends`` at the end of `import torch` (torch/__init__.py,
`_import_device_backends`), and an exception there breaks that import, even one while loading the module. So this
module is outside of the package `stepscope`: it is found even if the user's script is named ``stepscope.py``, or if the
package was removed but not its metadata. It imports nothing unless STEPSCOPE_TRACE is set, and raises nothing. It also
runs in Python 3.8, since any Python may find it in a folder on PYTHONPATH.
"""

import os
import sys


def autostart():  # type: () -> None
    """Record this process if STEPSCOPE_TRACE is set.

    Raises only KeyboardInterrupt; a failure is reported in one line on standard error.
    """
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

    wait_for_compile(os.environ.get("STEPSCOPE_WAITS"))


def _refuse_others():  # type: () -> None
    """Raise ImportError if `stepscope` is another package or script, whose code must not be run by importing it."""
    from importlib.util import find_spec

    found = find_spec("stepscope")
    if found is None:
        raise ImportError("the package stepscope is not installed, only its entry point")
    folders = found.submodule_search_locations or ()
    if not any(os.path.isfile(os.path.join(folder, "tracer", "autostart.py")) for folder in folders):
        raise ImportError("the name stepscope is used by " + str(found.origin or list(folders)))


def _warn(error):  # type: (BaseException) -> None
    try:
        sys.stderr.write("stepscope: nothing is recorded: " + str(error) + "\n")
    except Exception:
        return
