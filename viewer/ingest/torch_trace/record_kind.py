"""A row of the tables of kinds of TORCH_TRACE records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class RecordKind:
    title: str
    says: str
    """Sentence that explains such a record."""
    view: str = "record.raw"
    """Module and function below ``viewer/records/views`` that show such a record."""
    related: tuple[str, ...] = ()
    """Events of the same compile whose metadata the view uses."""
    names_files: bool = False
    """Whether the payload refers to files by their numbers in the string table."""
    known: bool = True
    of_compile: bool = False
    """Whether the record belongs to a compile even if PyTorch gives that compile no id, as for AOTInductor."""
    stage: str = ""
    """Stage of the compile whose graph or code the record contains."""
    variant: str = ""
    """Difference between this graph and others of the same stage."""
    inductor_run: Literal["", "begins", "within", "code"] = ""
    """Position in one run of Inductor, which compiles a forward, a backward or an inference graph."""
    has_metrics: bool = False
    """Whether the record contains compilation metrics."""
    ranks_compare: bool = False
    """Whether the graph must be the same on all ranks of one program."""
