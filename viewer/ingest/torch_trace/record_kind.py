"""One row of the tables of kinds of TORCH_TRACE records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class RecordKind:
    title: str
    says: str
    """One sentence: what a record of this kind is."""
    view: str = "record.raw"
    """Module and function below ``viewer/records/views`` that make such a record readable."""
    related: tuple[str, ...] = ()
    """Events of the same compile whose metadata the view uses."""
    names_files: bool = False
    """Whether its payload names files by their numbers in the string table."""
    known: bool = True
    of_compile: bool = False
    """Whether it belongs to a compile even where PyTorch gives that compile no id, as for AOTInductor."""
    stage: str = ""
    """Stage of a compile whose graph or code it holds."""
    variant: str = ""
    """What tells this graph from others of the same stage."""
    inductor_run: Literal["", "begins", "within", "code"] = ""
    """Its place in one run of Inductor, which compiles a forward, a backward or an inference graph."""
    has_metrics: bool = False
    """Whether it holds compilation metrics."""
    ranks_compare: bool = False
    """Whether its graph must be the same on ranks that run one program."""
