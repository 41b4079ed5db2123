"""Operators that are mapped over lots: one task does some tables, and each table counts for itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowFailException

from omnigraph_airflow.operators.base import OmnigraphOperator
from omnigraph_airflow.task_run import airflow_errors, failures_of
from omnigraph_ops.errors import StorageError, TransientError
from omnigraph_ops.parallel import in_parallel

if TYPE_CHECKING:
    from airflow.sdk import Context

    from omnigraph_airflow.run_facts import Failure
    from omnigraph_ops.graph import Graph

LOT_LABEL = "{{ task.label }}"
"""`map_index_template` of these operators."""


def label_of(lot: Sequence[str]) -> str:
    """What a lot is called for a person. Pure."""
    first, *others = lot
    return f"{first} and {len(others)} more" if others else str(first)


def only_one(lot: Sequence[str]) -> str | None:
    """The table of a lot of one. Pure."""
    return str(lot[0]) if len(lot) == 1 else None


class LotOperator(OmnigraphOperator):
    """Does the tables of a lot; one that fails stops no other, and fails the task in the end.

    What may succeed later is tried once more after the last table. Of a lot of one table the error is raised as
    it is, for Airflow to repeat it or not. Returns a list with a row per table.

    :param lot: the table keys (templated).
    """

    template_fields: Sequence[str] = ("graph", "lot")

    def __init__(self, *, lot: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.lot = lot

    @property
    def label(self) -> str:
        """What the lot is called in the list of mapped tasks."""
        return label_of(self.lot)

    def _subject(self) -> str | None:
        return only_one(self.lot)

    def run_table(self, graph: Graph, table_key: str, context: Context) -> Any:
        """Do one table; returns its row."""
        raise NotImplementedError

    def side_by_side(self, graph: Graph) -> int:
        """How many tables are done at once. Pure."""
        return 1

    def run_stage(self, graph: Graph, context: Context) -> list[Any]:
        done: dict[str, Any] = {}
        failed = self._round(graph, self.lot, context, done)
        again = [key for key, error in failed.items() if isinstance(error, (TransientError, StorageError))]
        if again and len(self.lot) > 1:
            self.log.info("Once more, these may succeed now: %s", ", ".join(again))
            failed = {key: error for key, error in failed.items() if key not in again}
            failed |= self._round(graph, again, context, done)
        rows = [done[key] for key in self.lot if key in done]
        if not failed:
            return rows
        if len(self.lot) == 1:
            raise next(iter(failed.values()))
        raise LotFailed([f for key, error in failed.items() for f in failures_of(context, key, error)], len(self.lot))

    def _round(
        self, graph: Graph, tables: Sequence[str], context: Context, done: dict[str, Any]
    ) -> dict[str, Exception]:
        """Do these tables, rows into `done`; what went wrong with which."""
        failed: dict[str, Exception] = {}

        def one(key: str) -> None:
            try:
                with airflow_errors():
                    done[key] = self.run_table(graph, key, context)
            except Exception as error:
                self.log.error("%s: %s", key, error)
                failed[key] = error

        if (threads := self.side_by_side(graph)) > 1:
            in_parallel(one, tables, workers=threads)
            return failed
        for key in tables:
            with self._group(key):
                one(key)
        return failed

    @contextmanager
    def _group(self, table_key: str) -> Iterator[None]:
        """Fold the log of a table away where there is more than one."""
        if len(self.lot) > 1:
            self.log.info("::group::%s", table_key)
        yield
        if len(self.lot) > 1:
            self.log.info("::endgroup::")


class LotFailed(AirflowFailException):
    """Tables of a lot failed; the others are done."""

    def __init__(self, failures: Sequence[Failure], tables: int) -> None:
        super().__init__(
            f"{len(failures)} of {tables} tables failed, the others are done: "
            + "; ".join(f"{failure.table_key}: {failure.message}" for failure in failures)
        )
        self.failures = failures
