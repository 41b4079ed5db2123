"""Tasks whose heavy part is a job of the Spark application; the rewrite of heavy tables, or of many small ones."""

from __future__ import annotations

import contextlib
import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import psutil
from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowNotFoundException

from omnigraph_airflow.forms import request_in
from omnigraph_airflow.hooks.omnigraph import SECRETS, Address, OmnigraphHook
from omnigraph_airflow.links import GraphPageLink
from omnigraph_airflow.operators.base import OmnigraphOperator, OptimizeLotOperator
from omnigraph_airflow.task_run import ENDED_FROM_OUTSIDE
from omnigraph_ops import serde
from omnigraph_ops.coordination.state import RESULTS_DIR
from omnigraph_ops.errors import InvalidInput, OpsError, StorageError
from omnigraph_ops.graph.layout import new_ulid
from omnigraph_ops.models.optimize import OptimizeReport, TableStats
from omnigraph_ops.models.runs import SubmitOutcome
from omnigraph_ops.spark.java import launch_environment
from omnigraph_ops.spark.submit import APPLICATION, ended, reason
from omnigraph_ops.stages.registry import UNASKED_BY_NAME

if TYPE_CHECKING:
    from airflow.sdk import Context

    from omnigraph_ops.graph import Graph
    from omnigraph_ops.storage.store import Storage


T = TypeVar("T")
_LINES_KEPT = 500
"""Of the output of a submit. Of the provider's 20 none says why where a master is dead: they are one Java stack."""
_EXIT_CODE = re.compile(r"Error code is: (-?\d+)")
"""As the provider tells it."""
_OUTPUT = "Last spark-submit output:\n"
"""What it says before the lines that it kept."""
_WITHOUT_CONNECTION = "yarn"
"""The master of a provider that could not read its connection."""
RESULT = (
    RESULTS_DIR + "/{{ run_id | replace(':', '.') | replace('+', '.') }}"
    "/{{ ti.dag_id }}.{{ ti.task_id }}.{{ ti.map_index }}.{{ ti.try_number }}.json"
)
"""With the DAG: two that work on one graph by the same clock have runs of one name."""


class SubmitJobOperator(OmnigraphOperator, SparkSubmitOperator):
    """Submits a job of the Spark application and brings its outcome back.

    spark-submit returns no value, so the application writes its outcome below the graph, under a
    name that holds the try: a retry cannot read what an earlier try left.

    A failed submit may be repeated, whatever became of it: the next one finishes what was half done and goes
    on with what was executed. Only what the application itself calls final is not repeated.

    :param graph: path or URI of the graph (templated).
    :param result: where the outcome goes, below the graph (templated).
    """

    template_fields: Sequence[str] = (*SparkSubmitOperator.template_fields, "graph", "result")
    ui_color = SparkSubmitOperator.ui_color
    operator_extra_links = (*SparkSubmitOperator.operator_extra_links, GraphPageLink())

    def __init__(self, *, result: str = RESULT, **kwargs: Any) -> None:
        # A retry submits again, and the application goes on where it was: the provider need not find the old submit,
        # for which YARN in cluster mode would have to be asked over its REST API.
        super().__init__(application=str(APPLICATION), **{"durable": False, **kwargs})
        self.result = result

    def submitted(self, context: Context, graph: Graph, job: str, arguments: Sequence[str], value: type[T]) -> T:
        """Submit a job, wait, and read its outcome. The effect of the job.

        Raises:
            StorageError: the same submit may succeed later.
            OpsError: the application calls its failure final.
        """
        self.application_args = [job, "--result-uri", f"{graph.uri}/{self.result}", *arguments]
        said = _submitted(job, self._conn_id, lambda: SparkSubmitOperator.execute(self, context), self.on_kill)
        return _value_at(graph.storage, self.result, value, job=job, said=said)

    def on_kill(self) -> None:
        with _what_it_started(self._hook):
            super().on_kill()

    def _get_hook(self) -> SparkSubmitHook:
        return _hook_for(OmnigraphHook(self.graph).address(), super()._get_hook)


@dataclass(slots=True)
class TaskSubmits:
    """Submits the heavy part of a stage from the task that runs it, through `spark_default`. A `Submit`."""

    graph: Graph
    address: Address
    _hook: SparkSubmitHook | None = None
    _killed: bool = False

    def __call__(self, job: str, arguments: Sequence[str], value: type[T], check: Callable[[], None]) -> T:
        """Submit a job, wait, and read its outcome. The effect of the job."""
        check()
        result = f"{RESULTS_DIR}/{new_ulid()}/{job}.json"
        words = [job, "--result-uri", f"{self.graph.uri}/{result}", *arguments]
        said = _submitted(job, SparkSubmitHook.default_conn_name, lambda: self._submit(job, words), self.kill)
        try:
            return _value_at(self.graph.storage, result, value, job=job, said=said)
        except OpsError:
            if self._killed:
                raise StorageError(f"the task was asked to end, and ended its submit of the job {job}") from None
            raise

    def _submit(self, job: str, words: list[str]) -> None:
        self._hook = _hook_for(self.address, lambda: SparkSubmitHook(name=f"omnigraph {job}", application_args=words))
        self._hook.submit(str(APPLICATION))

    def kill(self) -> None:
        """End the submit that is at work. Kills processes."""
        self._killed = True
        if self._hook is not None:
            with _what_it_started(self._hook):
                self._hook.on_kill()


def _hook_for(address: Address, make: Callable[[], SparkSubmitHook]) -> SparkSubmitHook:
    """The hook of the provider, with what the driver of a graph needs in its environment. Reads the connection."""
    hook = _connected(make)
    lacks = launch_environment(hook._connection["master"]) if _drives_here(hook) else {}
    # Set here, past the templated field: that one is stored and shown in the UI.
    hook._env_vars = {**lacks, **(hook._env_vars or {}), **driver_variables(address, hook)}
    return hook


def _drives_here(hook: SparkSubmitHook) -> bool:
    """Whether a submit takes the environment that it is given, and its driver runs in it. Pure."""
    return not (hook._is_yarn or hook._is_kubernetes or hook._connection["deploy_mode"] == "cluster")


def _connected(make: Callable[[], SparkSubmitHook]) -> SparkSubmitHook:
    """The hook of the provider, when it submits where its connection says. Reads the connection.

    A provider that finds no connection submits to YARN, and without its package for Kubernetes it has no name for it.

    Raises:
        InvalidInput: there is no such connection, or a package is missing.
        StorageError: the connection exists and could not be read when the hook was made.
    """
    try:
        hook = make()
    except NameError:
        raise InvalidInput(
            "the connection of the submit names a Kubernetes master, for which the package "
            "apache-airflow-providers-cncf-kubernetes is missing; nothing was submitted"
        ) from None
    if hook._connection["master"] == _WITHOUT_CONNECTION:
        try:
            named = hook.get_connection(hook._conn_id)
        except AirflowNotFoundException:
            raise InvalidInput(
                f"there is no connection {hook._conn_id}, so the master is unknown; nothing was submitted; "
                "make it under Admin, Connections (type Spark, the host is the master)"
            ) from None
        if named.host != _WITHOUT_CONNECTION:
            raise StorageError(f"the connection {hook._conn_id} could not be read; nothing was submitted")
    hook._last_submit_log_lines = deque(maxlen=_LINES_KEPT)
    return hook


@contextlib.contextmanager
def _what_it_started(hook: SparkSubmitHook | None) -> Iterator[None]:
    """End what a submit started after the submit itself: of a killed JVM the Python driver goes on. Kills processes."""
    launcher: Any = None if hook is None else hook._submit_sp
    started = list[psutil.Process]()
    with contextlib.suppress(psutil.NoSuchProcess):
        if launcher is not None and launcher.poll() is None:
            started = psutil.Process(launcher.pid).children(recursive=True)
    try:
        yield
    finally:
        for process in started:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()


def _submitted(job: str, connection: str, submit: Callable[[], object], kill: Callable[[], None]) -> str:
    """Submit and wait; what the provider says of it. The effect of the job."""
    try:
        submit()
    except AirflowException as error:
        return str(error)
    except (OSError, ValueError) as error:
        # There is no such binary, or the connection names one that the provider does not take.
        raise OpsError(
            f"the job {job} could not be submitted through {connection}: {error}; nothing was submitted; mend the "
            "connection under Admin, Connections, or install spark-submit on the worker"
        ) from None
    except ENDED_FROM_OUTSIDE:
        # Airflow calls `on_kill` later: by then the journal says what the job did, and it must not go on.
        kill()
        raise
    return "the application left no outcome"


def _value_at(storage: Storage, path: str, value: type[T], *, job: str, said: str) -> T:
    """What an application left as the value of its job. Reads, and removes it.

    Args:
        said: what the provider says of the submit.

    Raises:
        StorageError: it left no value, and the same submit may succeed later.
        OpsError: it calls its failure final.
    """
    try:
        outcome: SubmitOutcome[T] = serde.from_json(SubmitOutcome[value], storage.read(path))  # type: ignore[valid-type]
    except FileNotFoundError:  # it died before it could
        raise StorageError(_lost(job, said)) from None
    storage.delete(path)
    if outcome.value is not None:
        return outcome.value
    message = outcome.error or _lost(job, said)
    raise StorageError(message) if outcome.retryable else OpsError(message)


def driver_variables(address: Address, hook: SparkSubmitHook) -> dict[str, str]:
    """What a submit may hand to its driver; a secret only where it stays in an environment. Pure.

    On YARN and Kubernetes the provider makes arguments of these variables, and a standalone cluster takes
    none at all: there the driver's machine has the credentials (docs/how-to/many-graphs.md).
    """
    found = {**address.settings, **address.store}
    if _drives_here(hook):
        return found
    if hook._is_yarn or hook._is_kubernetes:
        return {name: value for name, value in found.items() if name not in SECRETS}
    return {}


def _lost(job: str, said: str) -> str:
    """How a job ended that left no outcome: of one that was killed the last lines are not the reason. Pure."""
    code, why = _EXIT_CODE.search(said), reason(said.rpartition(_OUTPUT)[2])
    return f"the job {job} {ended(int(code[1]), why)}" if code else why


class SubmitRewriteOperator(OptimizeLotOperator, SubmitJobOperator):
    """Submits a lot of tables as the job `rewrite`; a row per table becomes the XCom."""

    template_fields: Sequence[str] = (*SubmitJobOperator.template_fields, "lot", "request", "not_after")

    def run_stage(self, graph: Graph, context: Context) -> Any:
        left = {key: self.left_alone(graph, key) for key in self.lot}
        rows = [row for row in left.values() if row is not None]
        if rows:
            graph.run.notes(OptimizeReport.of(graph.uri, rows))
        if work := [key for key, row in left.items() if row is None]:
            rows += self._rewritten(context, graph, work)
        if failed := {row.table_key: AirflowFailException(row.error) for row in rows if row.error is not None}:
            self.fail(context, failed)
        return [serde.to_json(row) for row in rows]

    def _rewritten(self, context: Context, graph: Graph, keys: Sequence[str]) -> Sequence[TableStats]:
        """Submit, each table a unit: of a submit that is cut off the graph tells what it published. Writes."""
        from omnigraph_ops.stages.optimize.run import unit_of

        units = {key: unit_of(graph, key) for key in keys}
        for unit in units.values():
            graph.run.begins(unit)
        request = request_in(UNASKED_BY_NAME["optimize"], self.request)
        tables = [word for key in keys for word in ("--table", key)]
        words = ("--graph", graph.target, *tables, "--request", request.said)
        rows = self.submitted(context, graph, "rewrite", words, OptimizeReport).tables
        for row in rows:
            if row.error is None:
                graph.run.ended(units[row.table_key], OptimizeReport.of(graph.uri, (row,)))
        return rows
