"""Adds the option ``--stepscope`` to pytest, which loads this module through an entry point in every run.

It is outside of the package `stepscope`, like `_stepscope_autostart`: it is found even if the user's folder has a
script named ``stepscope.py``. It imports nothing of the package unless the option is given.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest

FOLDER = "stepscope_tests"


def pytest_addoption(parser: Any) -> None:
    parser.getgroup("stepscope").addoption(
        "--stepscope",
        nargs="?",
        const=FOLDER,
        default=None,
        metavar="DIR",
        help="Record each test that compiles into a folder of its own below DIR (default: stepscope_tests), and write "
        "the report of a test that fails. Variables such as STEPSCOPE_LEVEL choose what is recorded.",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: Any, parser: Any, args: list[str]) -> None:
    """Give the option its default folder, so that it does not take the path of a test that follows it."""
    if "--stepscope" in args:
        args[:] = [f"--stepscope={FOLDER}" if word == "--stepscope" else word for word in args]
        early_config.known_args_namespace = parser.parse_known_args(args, namespace=copy.copy(early_config.option))


def pytest_configure(config: Any) -> None:
    folder = config.getoption("stepscope", None)
    if folder is None:
        return
    from stepscope.tracer.integrations.pytest_plugin import TestRecorder

    # Workers of pytest-xdist get the options of this process, and may have another working folder.
    config.option.stepscope = str(config.invocation_params.dir / folder)
    config.pluginmanager.register(TestRecorder(config.option.stepscope), "stepscope-recorder")
