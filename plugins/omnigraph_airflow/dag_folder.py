"""The folder that holds the DAG files: below this package in the wheel, `dags/` of the repository in a checkout."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent
_IN_WHEEL, _IN_CHECKOUT = _PACKAGE / "dags", _PACKAGE.parents[1] / "dags"

DAGS_FOLDER = _IN_WHEEL if _IN_WHEEL.is_dir() else _IN_CHECKOUT
GRAPHS_CHECK = "omnigraph_graphs_check.py"
"""The file without a DAG: it raises the faults of the graphs file, so that Airflow shows them as import errors."""
