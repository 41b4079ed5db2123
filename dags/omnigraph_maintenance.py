"""# Nightly maintenance of an Omnigraph graph

| Stage | What it does | Effect |
|---|---|---|
| `wait_for_quiet_graph` | waits until nobody has published for a while | reads |
| `check_recovery` | settles what `recover` can prove, removes what killed runs left, or stops | publishes, rolls back |
| `plan_optimize` | decides per table what to do, and whether it needs Spark | reads |
| `optimize_table` | folds indexes, compacts; `submit_rewrite` does the heavy tables on Spark | writes |
| `summarize` | one row per table | compacts internal tables, only if exclusive |
| `preview_repair` | classifies drifted tables: evidence for a person | reads, keeps the plan in the graph |
| `apply_repair` | after `approve_repair` | publishes existing versions |
| `plan_cleanup` | lists the old versions that may go | reads, keeps the plan in the graph |
| `cleanup_table` | after `approve_cleanup` | **destroys** |
| `report` | what happened; red when anything failed, or a question got no Approve | reads, writes the history |

`check_recovery` finishes a write or rolls it back. It stops the run if only the engine or a person can settle what is
left.

**Approvals** appear under *Required Actions*. Reject, or no answer within 20 hours of the run's start, skips only that
step, and the run ends red as *unapproved*. An approval covers exactly the plan that was shown: if the graph moved,
the step refuses. To approve in advance, trigger by hand with `confirm_repair` or `confirm_cleanup`, or give
`standing_approval` its bounds; whatever is outside the bounds still waits for a person. Where a graph has approvers,
only their answers count. If only `report` is cleared, the answer and the state of the run stay. If the graph cannot be
opened, `report` fails and says why.

**Clearing**: once a question was shown, do not clear a task before it, but trigger a new run. The new plan would have
another digest while Airflow goes on showing the old question, so `approve_*` fails. Before that, clearing is safe: the
run plans again and asks.

**Limit**: 23 hours after the start of the run, three hours after the last moment for an answer, Airflow fails the run
and skips what has not ended, `report` too. The next recovery check records the run. In a graphs file `answer_within`
moves both, and a run of a graph with hours (`between`) has one day more.

**Which graph**: the param `graph`, else the Airflow Variable `omnigraph_graph`, else the environment
variable `OMNIGRAPH_GRAPH`.
"""

from __future__ import annotations

from airflow.sdk import DAG
from omnigraph_airflow.nightly import Night, nightly_dag

omnigraph_maintenance: DAG = nightly_dag(Night(doc_md=__doc__))
