"""The table of torch's private names, against the torch that is installed and against the recorder's source."""

from __future__ import annotations

import inspect
import warnings
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch

from stepscope.tracer.inductor import private_names
from stepscope.tracer.inductor.private_names import (
    NEWEST_TESTED,
    PRIVATE_NAMES,
    RECORDING,
    PrivateName,
    untested_version,
)
from stepscope.tracer.inductor.structured_log import LOGGER
from tests.test_architecture import private_torch_names

VERSION = tuple(int(part) for part in torch.__version__.split(".")[:2])
NO_NAME = object()


def resolved(name: str) -> Any:
    """What a dotted name stands for; NO_NAME where a part of it is missing."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of torch's own modules, while they are imported
                found: Any = import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for part in parts[length:]:
            found = getattr(found, part, NO_NAME)
        return found
    return NO_NAME


def has(found: Any, attribute: str) -> bool:
    """An attribute of a class, a module or a value, or one that its instances get in the source of the class."""
    if hasattr(found, attribute):
        return True
    return inspect.isclass(found) and f"self.{attribute}" in inspect.getsource(found)


def is_expected(private: PrivateName) -> bool:
    """Whether this version of torch is one of those that have the name."""
    since, until = (
        tuple(map(int, text.split("."))) if text is not None else NEWEST_TESTED
        for text in (private.since, private.until)
    )
    return since <= VERSION <= until


def test_a_newer_torch_is_told_in_one_sentence() -> None:
    major, minor = NEWEST_TESTED
    newer = f"{major}.{minor + 1}.0+cpu"
    found = untested_version(newer) or ""
    assert newer in found
    assert f"{major}.{minor}," in found
    assert untested_version(f"{major}.{minor}.1") is None
    assert untested_version("a version of one's own") is None


@pytest.mark.parametrize("private", PRIVATE_NAMES, ids=lambda private: f"{private.name}-{'-'.join(private.attributes)}")
def test_the_name_is_in_the_torch_that_is_installed(private: PrivateName) -> None:
    if private.name.startswith("torch._C._cuda") and torch.version.cuda is None:
        pytest.skip("a torch without CUDA")
    found = resolved(private.name)
    missing = [private.name] if found is NO_NAME else [one for one in private.attributes if not has(found, one)]
    if missing and private.needed_for != RECORDING and not is_expected(private):
        pytest.skip(f"torch {torch.__version__} has no {missing[0]}, which is needed for {private.needed_for}")
    assert not missing


def is_of(one: str, other: str) -> bool:
    return one.startswith(other) or other.startswith(one)


def test_every_private_name_of_the_source_is_in_the_table() -> None:
    known = [f"{private.name}." for private in PRIVATE_NAMES]
    folder = Path(private_names.__file__).parent
    used = {
        (path.name, name)
        for path in folder.rglob("*.py")
        if path.name != "private_names.py"
        for name in private_torch_names(f"stepscope.tracer.inductor.{path.stem}", path)
    }
    assert len(used) > 20
    used = {(file, name) for file, name in used if name != LOGGER and not name.endswith(".")}  # no names of objects
    unknown = [(file, name) for file, name in sorted(used) if not any(is_of(f"{name}.", one) for one in known)]
    assert not unknown
