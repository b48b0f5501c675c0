"""The programs that are run: what each needs, and what a true recording of it tells."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path

PROGRAMS = Path(__file__).parent / "programs"
NAMES = sorted(path.stem for path in PROGRAMS.glob("[a-z]*.py"))
ITERATIONS = "ITERATIONS "
"""A program of this folder prints this before the number of its iterations."""


@dataclass(frozen=True)
class Entry:
    """A program and what is known about it before it runs."""

    packages: tuple[str, ...] = ()
    """Modules that it imports besides torch."""
    iterations: int | None = None
    """For a program that does not print its number itself."""
    environment: dict[str, str] = field(default_factory=dict)
    command: tuple[str, ...] = ()
    """What stands between the interpreter and the file."""
    options: tuple[str, ...] = ()
    """What `stepscope run` is told besides."""
    level: str | None = None
    steps_of: str = "train"
    """The kind of step that an iteration is."""
    comparable: bool = True
    """Whether two runs print the same."""
    timeout_s: int = 300


KNOWN: dict[str, Entry] = {
    "acc": Entry(("accelerate",), 16, {"ACCELERATE_DYNAMO_BACKEND": "inductor"}),
    "ao": Entry(("torchao",), 5, steps_of="inference"),
    "aoti_export": Entry((), 3, options=("--aoti", "values"), steps_of="inference"),
    "hf_trainer": Entry(("transformers", "accelerate"), 12),
    "mpdl": Entry((), timeout_s=150),
    "nb": Entry(("nbclient", "nbformat", "ipykernel"), comparable=False),
    "pl": Entry(("lightning",), 16),
    "pl_inner": Entry(("lightning",), 16),
    "pyg": Entry(("torch_geometric",), 6),
    "test_suite": Entry(("pytest",), command=("-m", "pytest", "-q", "-p", "no:cacheprovider"), comparable=False),
    "timm_train": Entry(("timm",), 6),
    "unet": Entry(("diffusers",), 6, steps_of="inference"),
    "checkpointing": Entry(),
    "forking_server": Entry(steps_of="inference"),
    "forking_server_exit": Entry(steps_of="inference"),
    "gan": Entry(),
    "generate": Entry(("transformers",), steps_of="inference"),
    "gradient_accumulation": Entry(),
    "nano_gpt": Entry(),
    "notebook": Entry(("nbclient", "nbformat", "ipykernel"), steps_of="inference"),
    "reinforcement": Entry(),
    "serving": Entry(steps_of="inference"),
    "spawned_loader": Entry(),
    "threads": Entry(steps_of="inference"),
}


def entry(program: Path) -> Entry:
    """What is known about a program; of a file that nobody knows, nothing."""
    return KNOWN.get(program.stem, Entry())


def located(name: str) -> Path:
    """The file of a program that is named, or given as a path. Raises FileNotFoundError."""
    for path in (Path(name), PROGRAMS / f"{name}.py"):
        if path.is_file():
            return path.resolve()
    raise FileNotFoundError(f"there is no program {name}")


def command(program: Path) -> list[str]:
    return [sys.executable, *entry(program).command, str(program)]


def expected_iterations(program: Path, output: str) -> int | None:
    """The number of iterations that the program printed, else the one that is known."""
    printed = [line for line in output.splitlines() if line.startswith(ITERATIONS)]
    return int(printed[-1].removeprefix(ITERATIONS)) if printed else entry(program).iterations
