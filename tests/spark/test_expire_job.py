"""Rows that expire in Spark tasks are those that expire in one process: on random histories, beside other writers."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from omnigraph_ops.coordination.lease import committer_turn
from omnigraph_ops.errors import StorageError
from omnigraph_ops.models.rows import RowBounds, RowPolicy, TableRowStats
from omnigraph_ops.stages.expire_rows.apply import SubmittedDelete, delete_here, expire_rows
from omnigraph_ops.stages.expire_rows.plan import plan_row_retention
from omnigraph_ops.stages.freeze.take import freeze_graph
from omnigraph_ops.stages.stage import Submit
from tests.support.events import ITEMS, UTC_TIME, ids, items, utc_now
from tests.support.plain import opened
from tests.support.shell import Cli
from tests.support.spark_cluster import environment
from tests.support.spark_session import submit_in

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.xdist_group("spark-local")]
POLICY = RowPolicy(table_key=ITEMS, property="at", older_than_secs=30 * 86_400)
AGES: list[int | None] = [0, 10, 29, 31, 60, None, 61, 62, 5]
EXAMPLES = 200 if os.environ.get("OMNIGRAPH_PROPERTY_PROFILE") == "nightly" else 12


def expired(root: Path, submit: Submit | None = None) -> TableRowStats:
    """The row of the one table after its rows expired, on Spark or here. Destroys rows."""
    graph = opened(root)
    delete = delete_here
    if submit is not None:
        delete = SubmittedDelete(submit=submit, graph=graph)
    plan = plan_row_retention(graph, [POLICY], bounds=RowBounds(max_share=1.0))
    (stats,) = expire_rows(graph, plan, engine=None, delete=delete).tables
    return stats


def table(root: Path) -> Any:
    return lance.dataset(str(root / "items.lance"))


def look(root: Path) -> tuple[Any, ...]:
    """What readers see, by scans and by an index, and what is stored for them."""
    dataset = table(root)
    rows = dataset.to_table(with_row_id=True)
    by_index = dataset.to_table(columns=["id"], filter="id % 2 = 0 AND id < 40").column("id").to_pylist()
    deleted = [(f.fragment_id, f.count_rows(), f.num_deletions) for f in dataset.get_fragments()]
    return rows.to_pylist(), sorted(by_index), deleted, dataset.version


def deletion_files(root: Path) -> int:
    folder = root / "items.lance" / "_deletions"
    return len(list(folder.iterdir())) if folder.exists() else 0


def assert_no_litter(root: Path, files: int, *, more: int = 0) -> None:
    """So many deletion files, or a few more, and nothing that tasks noted."""
    assert files <= deletion_files(root) <= files + more
    assert not list((root / "__maintenance").glob("results/*/*"))


def appended(root: Path, ages: Sequence[int | None], first: int) -> None:
    now = utc_now()
    times = pa.array([None if age is None else now - timedelta(days=age) for age in ages], UTC_TIME)
    rows = pa.table({"id": pa.array(range(first, first + len(ages)), pa.int64()), "at": times})
    lance.write_dataset(rows, str(root / "items.lance"), mode="append")


def literal(days: int) -> str:
    """A time so many days ago, as Lance's SQL takes it."""
    micros = int((utc_now() - timedelta(days=days)).timestamp() * 1_000_000)
    return f"arrow_cast({micros}, 'Timestamp(Microsecond, Some(\"UTC\"))')"


def grow(root: Path, changes: Sequence[str], draw: random.Random) -> None:
    """A history of a table of times. Writes."""
    items(root, AGES, rows_per_file=3)
    for number, change in enumerate(changes):
        dataset = table(root)
        some = ", ".join(str(draw.randrange(100)) for _ in range(5))
        if change == "append":
            appended(root, [draw.choice([None, 1, 29, 31, 90]) for _ in range(7)], 10 * (number + 1))
        elif change == "delete":
            dataset.delete(f"id IN ({some})")
        elif change == "update":
            dataset.update({"at": literal(draw.choice([2, 40]))}, where=f"id IN ({some})")
        elif change == "compact":
            dataset.optimize.compact_files(target_rows_per_fragment=8)
        else:
            dataset.create_scalar_index(change, "BTREE", replace=True)


@seed(7)
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    changes=st.lists(st.sampled_from(["append", "append", "delete", "update", "compact", "at", "id"]), max_size=7),
    draw=st.randoms(use_true_random=False),
)
def test_what_expires_on_spark_expires_in_process(
    session: SparkSession, tmp_path_factory: pytest.TempPathFactory, changes: list[str], draw: random.Random
) -> None:
    here, there = tmp_path_factory.mktemp("here"), tmp_path_factory.mktemp("there")
    grow(here, changes, draw)
    shutil.copytree(here, there, dirs_exist_ok=True)
    assert expired(there, submit_in(session)) == expired(here)
    assert look(there) == look(here)
    assert_no_litter(there, deletion_files(here))


def interfering(session: SparkSession, once: Callable[[], object], litter: list[int], root: Path) -> Submit:
    """Another writer commits when the tasks of the first attempt have ended."""
    real, asked = submit_in(session), list[int]()

    def submit(job: str, arguments: Sequence[str], value: type[Any], check: Callable[[], None]) -> Any:
        done = real(job, arguments, value, check)
        if not asked:
            once()
            litter.append(deletion_files(root))
        asked.append(1)
        return done

    return submit


def test_a_row_that_is_renewed_meanwhile_stays(session: SparkSession, tmp_path: Path) -> None:
    root, files = items(tmp_path, AGES, rows_per_file=3), list[int]()
    renewed = interfering(session, lambda: table(root).update({"at": literal(0)}, where="id = 4"), files, root)
    stats = expired(root, renewed)
    assert (stats.rows_removed, stats.attempts, stats.error) == (3, 2, None)
    assert ids(root) == [0, 1, 2, 4, 5, 8]
    # Those of the first attempt are gone, which touched two fragments.
    assert_no_litter(root, files[0] - 2 + 2)


def test_rows_that_arrive_meanwhile_are_for_the_next_run(session: SparkSession, tmp_path: Path) -> None:
    root = items(tmp_path, AGES, rows_per_file=3)
    stats = expired(root, interfering(session, lambda: appended(root, [90, 1], 100), [], root))
    assert (stats.rows_removed, stats.rows_left, stats.attempts) == (4, 1, 1)
    assert ids(root) == [0, 1, 2, 5, 8, 100, 101]


def test_a_failed_job_deletes_nothing_and_leaves_nothing(session: SparkSession, tmp_path: Path) -> None:
    root = items(tmp_path, AGES, rows_per_file=3)

    def lost(job: str, arguments: Sequence[str], value: type[Any], check: Callable[[], None]) -> Any:
        submit_in(session)(job, arguments, value, check)
        raise StorageError("the driver is gone")

    before = look(root)
    assert expired(root, lost).error == "the driver is gone"
    assert look(root) == before
    assert_no_litter(root, 0)


def test_a_note_that_is_missing_deletes_nothing(session: SparkSession, tmp_path: Path) -> None:
    root = items(tmp_path, AGES, rows_per_file=3)

    def swallowed() -> None:
        next((root / "__maintenance" / "results").glob("*/*.json")).unlink()

    before = look(root)
    error = expired(root, interfering(session, swallowed, [], root)).error
    assert error is not None and "not have all that the tasks noted" in error
    assert look(root) == before


def made_anew(root: Path, ages: Sequence[int | None], versions: int) -> None:
    """Somebody drops the table and makes another in its place. Destroys and writes."""
    shutil.rmtree(root / "items.lance")
    items(root, ages, rows_per_file=3)
    while table(root).version < versions:
        table(root).update_config({"again": str(table(root).version)})


@pytest.mark.parametrize("versions", [1, 5])
def test_nothing_is_committed_to_a_table_that_was_made_anew(
    session: SparkSession, tmp_path: Path, versions: int
) -> None:
    root = items(tmp_path, AGES, rows_per_file=3)
    table(root).create_scalar_index("at", "BTREE")
    stats = expired(root, interfering(session, lambda: made_anew(root, [1, 40, 2], versions), [], root))
    assert stats.rows_removed == 0
    assert "nothing was deleted; plan again" in (stats.error or "")
    assert ids(root) == [0, 1, 2]
    assert_no_litter(root, 0)


def test_rows_that_tasks_find_in_a_table_that_was_made_anew_stay(session: SparkSession, tmp_path: Path) -> None:
    """It is there before the tasks are: they find all of its rows expired."""
    root, made = items(tmp_path, AGES, rows_per_file=3), list[int]()

    def late(job: str, arguments: Sequence[str], value: type[Any], check: Callable[[], None]) -> Any:
        if not made:
            made_anew(root, [90] * 9, 1)
            made.append(1)
        return submit_in(session)(job, arguments, value, check)

    stats = expired(root, late)
    assert stats.rows_removed == 0
    assert "nothing was deleted; plan again" in (stats.error or "")
    assert ids(root) == list(range(9))
    assert_no_litter(root, 0)


def test_rows_that_went_with_their_table_were_not_deleted_here(session: SparkSession, tmp_path: Path) -> None:
    root = items(tmp_path, AGES, rows_per_file=3)

    def lost(*_: Any) -> Any:
        made_anew(root, [1, 2], 2)
        raise StorageError("a data file is gone")

    stats = expired(root, lost)
    assert (stats.rows_removed, stats.rows_left, stats.error) == (0, 0, "a data file is gone")


def test_a_table_that_is_overwritten_meanwhile_is_counted_again(session: SparkSession, tmp_path: Path) -> None:
    root = items(tmp_path, AGES, rows_per_file=3)

    def overwritten() -> None:
        rows = table(root).to_table().slice(2, 3)
        lance.write_dataset(rows, str(root / "items.lance"), mode="overwrite")

    stats = expired(root, interfering(session, overwritten, [], root))
    assert (stats.rows_removed, stats.attempts, stats.error) == (2, 2, None)
    assert ids(root) == [2]
    # Of the first attempt none is left, of the second the one that its commit needs.
    assert_no_litter(root, 1)


def test_the_lease_is_free_while_tasks_look_for_rows(session: SparkSession, tmp_path: Path) -> None:
    root, held = items(tmp_path, AGES, rows_per_file=3), list[int]()

    def others_work() -> None:
        with committer_turn(opened(root), "another table", wait_seconds=0) as keeper:
            held.append(keeper.number)

    assert expired(root, interfering(session, others_work, [], root)).rows_removed == 4
    assert len(held) == 1


def test_a_freeze_that_is_taken_meanwhile_keeps_the_rows(session: SparkSession, tmp_path: Path) -> None:
    root = items(tmp_path, AGES, rows_per_file=3)
    before = ids(root)
    frozen = interfering(session, lambda: freeze_graph(opened(root), ttl_seconds=3600), [], root)
    error = expired(root, frozen).error
    assert error is not None and "is frozen" in error
    assert ids(root) == before
    assert_no_litter(root, 0)


def test_deletion_files_that_somebody_removed_are_not_committed(session: SparkSession, tmp_path: Path) -> None:
    root = items(tmp_path, AGES, rows_per_file=3)
    before = look(root)

    def removed() -> None:
        next((root / "items.lance" / "_deletions").iterdir()).unlink()

    error = expired(root, interfering(session, removed, [], root)).error
    assert error is not None and "is not there; nothing was deleted; run again" in error
    assert look(root) == before
    assert_no_litter(root, 0)


@pytest.mark.usefixtures("submits_here")
def test_the_shell_deletes_on_spark(tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", environment()["PYTHONPATH"])
    root = items(tmp_path, AGES, rows_per_file=3)
    words = ("--table", ITEMS, "--property", "at", "--older-than", "30d", "--max-share", "1", "--spark", "local[2]")
    preview = cli("expire-rows", str(root), *words)
    assert preview.code == 0, preview.err
    assert "--spark 'local[2]'" in preview.err
    done = cli("expire-rows --json --confirm", str(root), *words)
    assert done.code == 0, done.err
    assert done.json["tables"][0]["rows_removed"] == 4
    assert "expire on local[2]" in done.err
    assert ids(root) == [0, 1, 2, 5, 8]
