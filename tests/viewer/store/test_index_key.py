"""An index is built again when the code that reads logs has changed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from stepscope.viewer.store.code_digest import modules
from stepscope.viewer.store.index import CODE_THAT_READS_LOGS

IMPORTS = """
import importlib, pkgutil, sys
import stepscope.viewer.ingest as package
for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
    importlib.import_module(module.name)
for name, module in sys.modules.items():
    if name.startswith("stepscope."):
        print(module.__file__)
"""
OTHERS = {"__init__.py", "_version.py", "config.py", "errors.py"}
"""Modules that decide nothing about the rows of an index."""


def test_the_key_depends_on_every_module_that_reading_a_log_imports() -> None:
    done = subprocess.run([sys.executable, "-c", IMPORTS], capture_output=True, text=True, check=True)
    imported = {Path(line).resolve() for line in done.stdout.splitlines()}
    of_key = {path.resolve() for path in modules(CODE_THAT_READS_LOGS)}
    assert {path for path in imported - of_key if path.name not in OTHERS} == set()
