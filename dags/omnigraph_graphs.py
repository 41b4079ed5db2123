"""# A nightly DAG for every graph of the graphs file

`OMNIGRAPH_GRAPHS_FILE`, else the Airflow Variable `omnigraph_graphs_file`, names the file
(`docs/how-to/many-graphs.md`). Without one there are no DAGs here. A graph that the file describes with a fault has
none; `omnigraph_graphs_check.py` says why.
"""

from __future__ import annotations

from airflow.sdk import DAG, get_parsing_context
from omnigraph_airflow.graph_nights import graph_dag
from omnigraph_airflow.graphs import read_graphs_file

from omnigraph_ops.config.graph_entries import nightly_dag_id

reading = read_graphs_file()
# A worker that starts a task parses this file for one DAG.
wanted = get_parsing_context().dag_id
for entry in reading.graphs if reading else ():
    if wanted in (None, nightly_dag_id(entry.name)):
        dag: DAG = graph_dag(entry)
        globals()[dag.dag_id] = dag
