"""Every DAG of this package, for the dags folder of an existing Airflow.

One line in a file of that folder is enough:

    from omnigraph_airflow.all_dags import *

Airflow collects the DAGs from the names of that file. Faults of the graphs file are not raised here, because they would
hide all DAGs; a second file with `import omnigraph_airflow.dags.omnigraph_graphs_check` shows them.
"""

from __future__ import annotations

import runpy

from airflow.sdk import DAG

from omnigraph_airflow import DAGS_FOLDER, GRAPHS_CHECK


def _dags() -> dict[str, DAG]:
    """The DAGs of all files of the folder by their ids. Reads."""
    files = (file for file in sorted(DAGS_FOLDER.glob("*.py")) if file.name != GRAPHS_CHECK)
    names = (runpy.run_path(str(file)).values() for file in files)
    return {value.dag_id: value for values in names for value in values if isinstance(value, DAG)}


_found = _dags()
globals().update(_found)
__all__ = list(_found)
