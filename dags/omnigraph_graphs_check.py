"""# Faults of the graphs file, shown where Airflow shows faults of DAG files

Apart from the DAGs themselves, so that a fault in one entry keeps no other graph from its night.
"""

from __future__ import annotations

from omnigraph_airflow.graphs import read_graphs_file
from omnigraph_airflow.notify import notifier_faults

from omnigraph_ops.config.graphs_file import GraphsFileError

if reading := read_graphs_file():
    faults = [str(problem) for problem in reading.problems]
    # A night tells of a notifier that fails in a log alone, when somebody should have been told.
    faults += [f"{reading.file}: {fault}" for fault in notifier_faults(reading.graphs)]
    if faults:
        raise GraphsFileError("\n".join(faults))
