"""# Back a graph up

| Task | What it does | Effect |
|---|---|---|
| `freeze` | keeps the graph, with all its branches, as it is now | writes tags and a hold |
| `copy` | copies the frozen files below **Destination**; a retry goes on where it was | writes there only |
| `verify` | reads the backup again, all of it | writes its outcome there |
| `unfreeze` | ends the freeze, whatever happened before | removes tags and hold |
| `report` | what happened; red when anything failed | reads, writes the history |

Readers and writers go on meanwhile; maintenance waits. `omnigraph-ops backups DEST` lists what is there, and
`omnigraph-ops restore BACKUP PLACE` makes a graph of one. See `docs/how-to/backup.md`.

From `OMNIGRAPH_OPS_SPARK_COPY_THRESHOLD_BYTES` on, `copy` and `verify` run on Spark through `spark_default`.
"""

from __future__ import annotations

from omnigraph_airflow.forms import graph_param, in_params, request_params
from omnigraph_airflow.operators.backup import (
    FreezeOperator,
    SubmitBackupOperator,
    SubmitVerifyOperator,
    UnfreezeOperator,
)
from omnigraph_airflow.operators.report import ReportOperator
from omnigraph_airflow.stage_dag import manual_dag

from omnigraph_ops.stages.registry import UNASKED_BY_NAME

_BACKUP, _FREEZE = request_params(UNASKED_BY_NAME["backup"]), request_params(UNASKED_BY_NAME["freeze"])
PARAMS = {"graph": graph_param(), **_BACKUP, "ttl": _FREEZE["ttl"]}
_DESTINATION = "{{ params.destination or var.value.get('omnigraph_backups', '') }}"
_COPY = {**in_params(_BACKUP), "destination": _DESTINATION}


with manual_dag(dag_id="omnigraph_backup", params=PARAMS, doc_md=__doc__) as dag:
    freeze = FreezeOperator(
        task_id="freeze",
        request={"ttl": "{{ params.ttl }}", "reason": "backup {{ run_id }}"},
        backup=_COPY,
    )
    copy = SubmitBackupOperator(
        task_id="copy",
        request={**_COPY, "freeze_id": freeze.output},
        name="omnigraph-copy",
    )
    verify = SubmitVerifyOperator(task_id="verify", backup=copy.output, name="omnigraph-verify")
    unfreeze = UnfreezeOperator(task_id="unfreeze", freeze_id=freeze.output)
    # A run that is marked failed skips every other task: without a teardown that counts, it would end green.
    report = ReportOperator(task_id="report").as_teardown(on_failure_fail_dagrun=True)

    freeze >> copy >> verify >> unfreeze.as_teardown(setups=freeze) >> report
    verify >> report
