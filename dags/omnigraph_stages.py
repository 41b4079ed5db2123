"""# A DAG to trigger by hand for every stage that plans first

`omnigraph_ops.stages.registry` lists them. A stage that is added there has its DAG.
"""

from __future__ import annotations

from airflow.sdk import DAG, get_parsing_context
from omnigraph_airflow.stage_dag import stage_dag

from omnigraph_ops.stages.registry import BY_NAME

# A worker that starts a task parses this file for one DAG.
wanted = get_parsing_context().dag_id
for name, stage in BY_NAME.items():
    if wanted in (None, stage.dag_id):
        dag: DAG = stage_dag(name)
        globals()[dag.dag_id] = dag
