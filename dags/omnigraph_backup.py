"""# Back a graph up

| Task | What it does | Effect |
|---|---|---|
| `freeze` | keeps the graph, with all its branches, as it is now | writes tags and a hold |
| `copy` | copies the frozen files below **Destination**; a retry goes on where it was | writes there only |
| `verify` | reads the backup again, all of it | reads |
| `unfreeze` | ends the freeze, whatever happened before | removes tags and hold |
| `report` | what happened; red when anything failed | reads, writes the history |

Readers and writers go on meanwhile; maintenance waits. `omnigraph-ops backups DEST` lists what is there, and
`omnigraph-ops restore BACKUP PLACE` makes a graph of one. See `docs/how-to/backup.md`.
"""

from __future__ import annotations

from airflow.sdk import Param, TriggerRule
from omnigraph_airflow.forms import graph_param
from omnigraph_airflow.operators.backup import BackupOperator, FreezeOperator, UnfreezeOperator, VerifyBackupOperator
from omnigraph_airflow.operators.report import ReportOperator
from omnigraph_airflow.stage_dag import manual_dag

from omnigraph_ops.quantities import DURATION
from omnigraph_ops.requests import SIZE

PARAMS = {
    "graph": graph_param(),
    "destination": Param(
        None,
        type=["null", "string"],
        title="Destination",
        description_md="Path or `s3://` URI; the backup is a folder below it. Empty: the Airflow Variable "
        "`omnigraph_backups`.",
    ),
    "incremental": Param(
        True,
        type="boolean",
        title="Incremental",
        description_md="Take unchanged files from the newest finished backup of the graph there.",
    ),
    "checksum": Param(
        False,
        type="boolean",
        title="Checksums",
        description_md="Of every file, also where the store could copy by itself.",
    ),
    "max_bytes_per_second": Param(
        None,
        type=["null", "string"],
        pattern=SIZE,
        title="Bytes per second at most",
        description_md="As in `50MB`.",
    ),
    "ttl": Param(
        "1d",
        type="string",
        pattern=DURATION,
        title="Frozen at most",
        description_md="As in `12h`. The freeze ends by itself after this, even when nothing of Airflow is left.",
    ),
}


@manual_dag(dag_id="omnigraph_backup", params=PARAMS, doc_md=__doc__)
def omnigraph_backup() -> None:
    """Freeze, copy, verify, unfreeze, report."""
    freeze = FreezeOperator(task_id="freeze", ttl="{{ params.ttl }}")
    copy = BackupOperator(
        task_id="copy",
        destination="{{ params.destination or var.value.get('omnigraph_backups', '') }}",
        freeze_id=freeze.output,
        incremental="{{ params.incremental }}",
        checksum="{{ params.checksum }}",
        max_bytes_per_second="{{ params.max_bytes_per_second }}",
    )
    verify = VerifyBackupOperator(task_id="verify", backup=copy.output)
    unfreeze = UnfreezeOperator(task_id="unfreeze", freeze_id=freeze.output)
    report = ReportOperator(task_id="report", trigger_rule=TriggerRule.ALL_DONE)

    freeze >> copy >> verify >> unfreeze.as_teardown(setups=freeze) >> report
    verify >> report


dag = omnigraph_backup()
