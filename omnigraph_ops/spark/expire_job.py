"""The job `expire`: the deletion files of one delete on a plain Lance table, written by tasks; nothing is committed."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from functools import partial
from uuid import uuid4

from pyspark.sql import SparkSession

from omnigraph_ops.lance.rows import delete_in_fragment, fragment_ids
from omnigraph_ops.spark.job import Job, open_table, run_tasks
from omnigraph_ops.stages.expire_rows.apply import NOTES, DeletesDone, TaskDone, note_path
from omnigraph_ops.storage.store import Storage

_FRAGMENTS_OF_TASK = 16
"""A lost task repeats so many."""


def _expire(spark: SparkSession, arguments: Namespace) -> DeletesDone:
    dataset = open_table(arguments.dataset, arguments.version)
    ids = fragment_ids(dataset)
    groups = [ids[start : start + _FRAGMENTS_OF_TASK] for start in range(0, len(ids), _FRAGMENTS_OF_TASK)]
    return DeletesDone(tasks=tuple(run_tasks(spark.sparkContext, partial(delete_on_worker, arguments), groups)))


def delete_on_worker(arguments: Namespace, fragments: Sequence[int]) -> TaskDone:
    """Delete in some fragments, and note what came of each. Writes deletion files and notes, commits nothing."""
    attempt, rows = uuid4().hex, 0
    dataset = open_table(arguments.dataset, arguments.version)
    storage = Storage(arguments.graph)
    for fragment_id in fragments:
        delete = delete_in_fragment(dataset, fragment_id, arguments.predicate)
        if delete is not None:
            NOTES.write(storage, note_path(arguments.notes, attempt, fragment_id), delete)
            rows += delete.rows
    return TaskDone(attempt=attempt, rows=rows)


def _arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--graph", required=True, help="the database, as every executor reaches it")
    parser.add_argument("--dataset", required=True, help="the table, as every executor reaches it")
    parser.add_argument("--version", type=int, required=True, help="the version whose rows were counted")
    parser.add_argument("--predicate", required=True, help="which rows go, in Lance's SQL")
    parser.add_argument("--notes", required=True, help="the folder below the database where tasks note what they did")


EXPIRE = Job(
    name="expire", summary="Write what deletes expired rows.", subject="dataset", arguments=_arguments, work=_expire
)
