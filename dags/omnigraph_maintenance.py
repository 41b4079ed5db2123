"""# Nightly maintenance of an Omnigraph graph

| Stage | What it does | Effect |
|---|---|---|
| `wait_for_quiet_graph` | waits until nobody has published for a while | reads |
| `check_recovery` | finishes what a crashed optimize left, or stops | publishes what was written |
| `plan_optimize` | decides per table what to do, and whether it needs Spark | reads |
| `optimize_table` | folds indexes, compacts; `submit_rewrite` does the heavy tables on Spark | writes |
| `summarize` | one row per table | compacts internal tables, only if exclusive |
| `preview_repair` | classifies drifted tables: evidence for a person | reads |
| `apply_repair` | after `approve_repair` | publishes existing versions |
| `plan_cleanup` | lists the old versions that may go | reads |
| `cleanup_table` | after `approve_cleanup` | **destroys** |
| `report` | what happened; red when anything failed or was not approved | reads |

**Approvals** appear under *Required Actions*. Reject, or no answer within 20 hours of the run's start, skips only that
step, and the run ends red as *unapproved*. An approval covers exactly the plan that was shown: if the graph moved,
the step refuses. To approve in advance, trigger by hand with `confirm_repair` or `confirm_cleanup`, or give
`standing_approval` its bounds; whatever is outside the bounds still waits for a person. Where a graph has approvers,
only their answers count. A run that is cleared asks anew. If only `report` is cleared, the answer and the state of
the run stay. If the graph cannot be opened, `report` fails and says why.

**Which graph**: the param `graph`, else the Airflow Variable `omnigraph_graph`, else the environment
variable `OMNIGRAPH_GRAPH`.
"""

from __future__ import annotations

from airflow.sdk import DAG
from omnigraph_airflow.nightly import Night, nightly_dag

omnigraph_maintenance: DAG = nightly_dag(Night(doc_md=__doc__))
