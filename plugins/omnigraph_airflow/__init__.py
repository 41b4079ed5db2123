"""The Airflow face of omnigraph_ops: thin operators, one sensor, one hook, no logic of their own.

Stage modules of `omnigraph_ops` are imported inside `execute`, because every Airflow component
imports this package and `import lance` alone costs a second and a half.
"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

from omnigraph_ops import __version__ as __version__

_PACKAGE = Path(__file__).resolve().parent
_IN_WHEEL, _IN_CHECKOUT = _PACKAGE / "dags", _PACKAGE.parents[1] / "dags"

DAGS_FOLDER = _IN_WHEEL if _IN_WHEEL.is_dir() else _IN_CHECKOUT
GRAPHS_CHECK = "omnigraph_graphs_check.py"
"""The file without a DAG: it raises the faults of the graphs file, so that Airflow shows them as import errors."""


PAGES = "/omnigraph-maintenance"
"""Where the pages are served."""


def base_path() -> str:
    """The path that Airflow is served under, empty at the top of a host. Reads the config."""
    # Every component of Airflow loads the plugin, and with it this module.
    from airflow.sdk.configuration import conf

    return urlsplit(str(conf.get("api", "base_url", fallback=""))).path.rstrip("/")
