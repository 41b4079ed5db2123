"""# Faults of the graphs file, shown where Airflow shows faults of DAG files

Apart from the DAGs themselves, so that a fault in one entry keeps no other graph from its night.
"""

from __future__ import annotations

from omnigraph_airflow.graphs import read_graphs_file

from omnigraph_ops.config.graphs_file import GraphsFileError

if (reading := read_graphs_file()) and reading.problems:
    raise GraphsFileError.of(reading.problems)
