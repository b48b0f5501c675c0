"""DuckDB's compiled module. What its package adds in Python, relations and functions, is of no use here, and
importing it takes a tenth of a second."""

from __future__ import annotations

try:
    import _duckdb as duckdb
except ImportError:  # of older versions
    import duckdb  # type: ignore[no-redef]

__all__ = ["duckdb"]
