"""Heavy tables: the same optimize, submitted to Spark."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk.exceptions import AirflowException, AirflowFailException

import omnigraph_ops
from omnigraph_airflow.hooks.omnigraph import GRAPH, SECRETS, Address, OmnigraphHook
from omnigraph_airflow.links import GraphPageLink
from omnigraph_airflow.operators.base import failures_told, to_xcom
from omnigraph_airflow.run_options import left_alone, policy_arguments
from omnigraph_airflow.task_run import airflow_errors, journaled
from omnigraph_ops import serde
from omnigraph_ops.coordination.state import RESULTS_DIR
from omnigraph_ops.models import TableStats
from omnigraph_ops.models.optimize import SubmitOutcome

if TYPE_CHECKING:
    from airflow.sdk import Context

    from omnigraph_ops.graph import Graph
    from omnigraph_ops.storage.store import Storage

APPLICATION = str(Path(omnigraph_ops.__file__).parent / "spark" / "rewrite_table.py")
RESULT = (
    RESULTS_DIR + "/{{ run_id | replace(':', '.') | replace('+', '.') }}"
    "/{{ ti.task_id }}.{{ ti.map_index }}.{{ ti.try_number }}.json"
)


class SubmitRewriteOperator(SparkSubmitOperator):
    """Submits one table to Spark and brings its outcome back as XCom.

    spark-submit returns no value, so the application writes its outcome below the graph, under a
    name that holds the try: a retry cannot read what an earlier try left.

    :param table_key: the table (templated).
    :param graph: path or URI of the graph (templated).
    :param result: where the outcome goes, below the graph (templated).
    :param policy: `converge` or `tiered` (templated); None means the deployment's setting.
    :param cutoff: bound on small fragments (templated); None means the deployment's setting.
    :param auto: whether it is done only if it is past a threshold (templated).
    :param not_after: the run's deadline in microseconds (templated): later than that the table waits.
    """

    template_fields: Sequence[str] = (
        *SparkSubmitOperator.template_fields,
        *("graph", "table_key", "result"),
        *("policy", "cutoff", "auto", "not_after"),
    )
    operator_extra_links = (*SparkSubmitOperator.operator_extra_links, GraphPageLink())

    def __init__(
        self,
        *,
        table_key: str,
        graph: str = GRAPH,
        result: str = RESULT,
        policy: str | None = None,
        cutoff: int | str | None = None,
        auto: bool | str = False,
        not_after: int | str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(application=APPLICATION, **kwargs)
        self._address: Address | None = None
        self.table_key = table_key
        self.graph = graph
        self.result = result
        self.policy, self.cutoff, self.auto, self.not_after = policy, cutoff, auto, not_after

    def execute(self, context: Context) -> Any:
        """Submit, wait, read the outcome.

        A failed submit may be repeated, whatever became of it: the next one finishes what was armed and goes
        on with what was executed. Only what the application itself calls final is not repeated.
        """
        with failures_told(context, self.table_key), airflow_errors():
            return to_xcom(self._submit_and_read(context))

    def _submit_and_read(self, context: Context) -> TableStats:
        hook = OmnigraphHook(self.graph)
        opened, self._address = hook.get_conn(), hook.address()
        with journaled(context, opened, self.table_key) as graph, airflow_errors():
            stats = left_alone(graph, self.table_key, self.not_after, say=self.log.info)
            stats = stats or self._rewritten(context, graph)
            graph.run.notes(stats)
        return stats

    def _rewritten(self, context: Context, graph: Graph) -> TableStats:
        """Submit, as one unit of the task: of a submit that is cut off the graph tells what it published. Writes."""
        from omnigraph_ops.stages.optimize.run import unit_of

        unit = unit_of(graph, self.table_key)
        graph.run.begins(unit)
        stats = self._submitted(context, graph)
        graph.run.ended(unit, stats)
        return stats

    def _submitted(self, context: Context, graph: Graph) -> TableStats:
        uri, storage = graph.uri, graph.storage
        self.application_args = [
            "--graph",
            graph.target,
            "--table",
            self.table_key,
            "--result-uri",
            f"{uri}/{self.result}",
            *policy_arguments(self.policy, self.cutoff, self.auto),
        ]
        try:
            super().execute(context)
        except AirflowException as error:
            outcome = self._outcome(storage)
            raise _failure(outcome, sentence(str(error))) from error
        outcome = self._outcome(storage)
        if outcome is None or outcome.stats is None:
            raise _failure(outcome, "the application left no outcome")
        if outcome.stats.error is not None:
            raise AirflowFailException(outcome.stats.error)
        return outcome.stats

    def _get_hook(self) -> SparkSubmitHook:
        """The hook of the provider, with what the driver of this graph needs in its environment. Reads."""
        hook = super()._get_hook()
        extra = driver_variables(self._address, hook)
        if extra:
            # Set here, past the templated field: that one is stored and shown in the UI.
            hook._env_vars = {**(hook._env_vars or {}), **extra}
        return hook

    def _outcome(self, storage: Storage) -> SubmitOutcome | None:
        """What the application left, None when it died before it could. Reads, and removes it."""
        try:
            outcome = serde.from_json(SubmitOutcome, storage.read(self.result))
        except FileNotFoundError:
            return None
        storage.delete(self.result)
        return outcome


def driver_variables(address: Address | None, hook: SparkSubmitHook) -> dict[str, str]:
    """What a submit may hand to its driver; a secret only where it stays in an environment. Pure.

    On YARN and Kubernetes the provider makes arguments of these variables, and a standalone cluster takes
    none at all: there the driver's machine has the credentials (docs/how-to/many-graphs.md).
    """
    if address is None:
        return {}
    if hook._is_yarn or hook._is_kubernetes:
        return {name: value for name, value in {**address.settings, **address.store}.items() if name not in SECRETS}
    if hook._connection["deploy_mode"] == "cluster":
        return {}
    return {**address.settings, **address.store}


def _failure(outcome: SubmitOutcome | None, otherwise: str) -> AirflowException:
    """The exception that makes Airflow repeat the submit, or not. Pure."""
    message = (outcome.error if outcome is not None else None) or otherwise
    final = outcome is not None and not outcome.retryable
    return AirflowFailException(message) if final else AirflowException(message)


def sentence(output: str) -> str:
    """The application's own `Error:` line out of what spark-submit printed, else all of it. Pure."""
    lines = [line.partition("Error: ")[2] for line in output.splitlines() if "Error: " in line]
    return lines[-1] if lines else output
