"""Rows of plain datasets expire exactly: by age, inside bounds, beside other writers."""

from __future__ import annotations

import json
import os
import shutil
import time
from argparse import Namespace
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

from omnigraph_ops.config.settings import SparkEntry, SparkStage
from omnigraph_ops.coordination.environment import this_machine
from omnigraph_ops.coordination.lease import LeasePlace, committer_lease
from omnigraph_ops.coordination.state import EXPIRE_ROWS_LEASE_PATH
from omnigraph_ops.errors import (
    GraphFrozen,
    InvalidInput,
    LeaseHeld,
    NotAGraph,
    OpsError,
    StalePlan,
    StorageError,
    UnknownTable,
)
from omnigraph_ops.lance.gateway import CommitConflict, Dataset, LanceGateway
from omnigraph_ops.lance.rows import clock_of, delete_in_fragment, fragment_ids
from omnigraph_ops.models.rows import EpochUnit, RowBounds, RowPolicy, RowRetentionPlan
from omnigraph_ops.progress import SILENT, Stopped
from omnigraph_ops.spark.expire_job import delete_on_worker
from omnigraph_ops.stages.expire_rows import apply
from omnigraph_ops.stages.expire_rows.apply import DeletesDone, delete_here, expire_rows, note_path
from omnigraph_ops.stages.expire_rows.plan import plan_row_retention
from omnigraph_ops.stages.expire_rows.stage import ExpireRows
from omnigraph_ops.stages.freeze.take import freeze_graph
from tests.support.edges import raising, when_asked
from tests.support.events import ITEMS, ids, items, stamps, timed, updated_and_folded
from tests.support.leases import left_held, take_over
from tests.support.plain import opened
from tests.support.stopped import LeavesPauses
from tests.support.texts import text_release
from tests.support.waits import shorten_waits

DAY = 86_400
BY_TIME = RowPolicy(table_key=ITEMS, property="at", older_than_secs=30 * DAY)


def once_before(monkeypatch: pytest.MonkeyPatch, interfere: Callable[[], None]) -> None:
    """Another writer commits between the count and the delete of the first attempt."""
    when_asked(monkeypatch, lance.LanceDataset, "delete", interfere)


def timed_again(folder: Path, column: pa.Array) -> Any:
    table = pa.table({"id": pa.array(range(len(column)), pa.int64()), "at": column})
    dataset = lance.write_dataset(table, str(folder / "items.lance"), mode="overwrite")
    dataset.create_scalar_index("at", "BTREE")
    return dataset


def sealed_again(plan: RowRetentionPlan, table: Any) -> RowRetentionPlan:
    from omnigraph_ops.coordination.sealed import seal

    return seal(replace(plan, tables=(table,)))


class TestPlain:
    def test_only_what_is_older_goes_in_one_commit(self, tmp_path: Path) -> None:
        root = items(tmp_path, [0, 10, 29, 31, 60, None], rows_per_file=2)
        graph = opened(root)
        plan = plan_row_retention(graph, [BY_TIME])
        (table,) = plan.tables
        assert (table.rows, table.expired, table.edges, table.refused) == (6, 2, (), None)
        assert len(table.sample) == 2
        assert table.oldest_us is not None and table.newest_us is not None
        assert table.oldest_us < table.newest_us < table.cut_at_us
        before = lance.dataset(str(root / "items.lance")).version
        (stats,) = expire_rows(graph, plan, engine=None).tables
        assert (stats.rows_removed, stats.rows_left, stats.attempts, stats.error) == (2, 0, 1, None)
        assert ids(root) == [0, 1, 2, 5]
        assert lance.dataset(str(root / "items.lance")).version == before + 1
        assert len(lance.dataset(str(root / "items.lance"), version=before).to_table()) == 6, (
            "the version before is whole"
        )

    @pytest.mark.parametrize(("least", "removed", "jobs"), [(7, 2, []), (6, 0, ["expire"]), (0, 0, ["expire"])])
    def test_a_table_is_submitted_from_so_many_rows_on(
        self, tmp_path: Path, least: int, removed: int, jobs: list[str]
    ) -> None:
        entry = SparkEntry(stage=SparkStage.EXPIRE_ROWS, at_least=least)
        root, asked = items(tmp_path, [0, 10, 29, 31, 60, None]), list[str]()
        graph = opened(root, spark_stages=(entry,))
        plan = plan_row_retention(graph, [BY_TIME])

        def submit(job: str, *_: object) -> Any:
            asked.append(job)
            raise StorageError("no Spark here")

        (stats,) = ExpireRows().apply(graph, plan, SILENT, submit).tables
        assert (stats.rows_removed, asked) == (removed, jobs)
        assert stats.error == ("no Spark here" if jobs else None)
        assert len(ids(root)) == 6 - removed

    @pytest.mark.parametrize(
        ("lost", "words"),
        [
            (None, None),
            ("note", "does not have all that the tasks noted there; nothing was deleted"),
            ("file", "which a task wrote, is not there; nothing was deleted"),
        ],
    )
    def test_what_submitted_tasks_wrote_is_committed_as_a_whole_or_not_at_all(
        self, tmp_path: Path, lost: str | None, words: str | None
    ) -> None:
        """The tasks run here, one of them twice; then something of what they wrote is lost."""
        root = items(tmp_path, [1, 60, 2, 61, 3, 62], rows_per_file=2)
        graph = opened(root, spark_stages=(SparkEntry(stage=SparkStage.EXPIRE_ROWS, at_least=0),))
        plan = plan_row_retention(graph, [BY_TIME])

        def submit(_job: str, words: Sequence[str], *_: object) -> DeletesDone:
            options = dict(zip((word.removeprefix("--") for word in words[::2]), words[1::2], strict=True))
            arguments = Namespace(**options | {"version": int(options["version"])})
            dataset = lance.dataset(arguments.dataset)
            delete_on_worker(arguments, fragment_ids(dataset))  # of an attempt that was lost
            done = DeletesDone(tasks=tuple(delete_on_worker(arguments, [n]) for n in fragment_ids(dataset)))
            if lost is not None:
                note = Path(root, note_path(arguments.notes, done.tasks[-1].attempt, fragment_ids(dataset)[-1]))
                file = root / "items.lance" / json.loads(note.read_text())["file"]
                (note if lost == "note" else file).unlink()
            return done

        (stats,) = ExpireRows().apply(graph, plan, SILENT, submit).tables
        assert (words or "") in (stats.error or "")
        assert (stats.error is None) is (words is None)
        assert ids(root) == ([0, 2, 4] if lost is None else [0, 1, 2, 3, 4, 5])
        left = list((root / "items.lance").glob("_deletions/*"))
        assert len(left) == {None: 3, "note": 1, "file": 0}[lost], "what counts for nothing is removed by its note"

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("kind", "unit"),
        [
            *((pa.timestamp(u, tz), None) for u in ("s", "ms", "us", "ns") for tz in (None, "UTC", "Europe/Paris")),
            (pa.date64(), None),
            (pa.date32(), None),
            *((kind, EpochUnit.MS) for kind in (pa.int64(), pa.uint64())),
            *((kind, EpochUnit.S) for kind in (pa.int32(), pa.uint32(), pa.int64())),
        ],
        ids=str,
    )
    def test_the_boundary_is_exact(self, tmp_path: Path, kind: pa.DataType, unit: EpochUnit | None) -> None:
        """A value at the cut stays, the one just below goes, a null never does; with an index too."""
        width = pa.int32() if kind in (pa.date32(), pa.int32(), pa.uint32()) else pa.int64()
        probe = pa.array([0], width).cast(kind) if pa.types.is_integer(kind) else pa.array([0], width).view(kind)
        timed(tmp_path / "items.lance", {"at": pa.concat_arrays([probe, probe, probe, probe])})
        policy = replace(BY_TIME, unit=unit)
        cut = plan_row_retention(opened(tmp_path), [policy], bounds=RowBounds(max_share=1)).tables[0].cut
        near = pa.array([cut - 1, cut, cut + 1, None], width)
        column = near.cast(kind) if pa.types.is_integer(kind) else near.view(kind)
        dataset = timed_again(tmp_path, column)
        plan = plan_row_retention(opened(tmp_path), [policy])
        fixed = replace(plan.tables[0], cut=cut, expired=1, max_rows=1, refused=None)
        plan = sealed_again(plan, fixed)
        assert expire_rows(opened(tmp_path), plan, engine=None).rows_removed == 1
        assert ids(tmp_path) == [1, 2, 3]
        assert dataset.count_rows() == 4

    @pytest.mark.parametrize("kind", [pa.date32(), pa.date64()], ids=str)
    def test_a_day_is_older_when_all_of_it_is(self, tmp_path: Path, kind: pa.DataType) -> None:
        today = time.time_ns() // 86_400_000_000_000
        at = pa.array([today - 31, today - 30, None], pa.int32()).view(pa.date32()).cast(kind)
        timed(tmp_path / "items.lance", {"at": at})
        (table,) = plan_row_retention(opened(tmp_path), [BY_TIME], bounds=RowBounds(max_share=1)).tables
        assert (table.expired, table.cut_at_us) == (1, (today - 30) * 86_400_000_000)

    def test_an_index_on_the_column_does_not_change_what_goes(self, tmp_path: Path) -> None:
        root = items(tmp_path, [*range(100), None])
        lance.dataset(str(root / "items.lance")).create_scalar_index("at", "BTREE")
        plan = plan_row_retention(opened(root), [BY_TIME], bounds=RowBounds(max_share=0.9))
        expire_rows(opened(root), plan, engine=None)
        # The row of exactly 30 days was written before the plan was made.
        assert ids(root) == [*range(30), 100]

    @pytest.mark.parametrize(
        ("column", "unit", "words"),
        [
            (pa.array(["2020-01-01"] * 3), None, "'at' is string"),
            (pa.array([1.5] * 3), None, "'at' is double"),
            (pa.array([1] * 3), None, r"say what it counts by the unit s or ms of its policy \(--unit\)"),
            (pa.array([1] * 3, pa.int32()), EpochUnit.MS, "too narrow for ms since 1970"),
            (pa.array([1] * 3, pa.uint16()), EpochUnit.S, "too narrow for s since 1970"),
            (stamps([1, 2, 3]), EpochUnit.S, "leave the unit out"),
        ],
    )
    def test_other_columns_are_refused(
        self, tmp_path: Path, column: pa.Array, unit: EpochUnit | None, words: str
    ) -> None:
        timed(tmp_path / "items.lance", {"at": column})
        with pytest.raises(InvalidInput, match=words):
            plan_row_retention(opened(tmp_path), [replace(BY_TIME, unit=unit)])
        with pytest.raises(
            InvalidInput, match=r"no column 'other' in .*; its dates, times and integers are (at, )?id; "
        ):
            plan_row_retention(opened(tmp_path), [replace(BY_TIME, property="other")])

    def test_an_unknown_table_and_a_branch_are_refused(self, tmp_path: Path) -> None:
        root = items(tmp_path, [1])
        with pytest.raises(UnknownTable, match="it has table:items"):
            plan_row_retention(opened(root), [replace(BY_TIME, table_key="table:other")])
        with pytest.raises(NotAGraph):
            plan_row_retention(opened(root), [BY_TIME], branch="b")

    def test_a_share_that_is_too_large_is_refused_until_it_is_said(self, tmp_path: Path) -> None:
        root = items(tmp_path, [1, 60, 70, 80])
        plan = plan_row_retention(opened(root), [BY_TIME])
        assert "3 of 4 rows (75%)" in (plan.tables[0].refused or "")
        assert expire_rows(opened(root), plan, engine=None).tables[0].refused
        assert ids(root) == [0, 1, 2, 3]
        plan = plan_row_retention(opened(root), [BY_TIME], bounds=RowBounds(max_share=0.75))
        assert expire_rows(opened(root), plan, engine=None).rows_removed == 3

    def test_more_rows_than_were_planned_are_refused(self, tmp_path: Path) -> None:
        root = items(tmp_path, [1, 2, 3, 4, 60])
        plan = plan_row_retention(opened(root), [BY_TIME])
        roomy = plan_row_retention(opened(root), [BY_TIME], bounds=RowBounds(max_rows=2))
        late = pa.table({"id": pa.array([9], pa.int64()), "at": stamps([90])})
        lance.write_dataset(late, str(root / "items.lance"), mode="append")
        (stats,) = expire_rows(opened(root), plan, engine=None).tables
        assert "2 rows below the cut and at most 1 may go (--max-rows)" in (stats.error or "")
        assert ids(root) == [0, 1, 2, 3, 4, 9]
        assert expire_rows(opened(root), roomy, engine=None).rows_removed == 2

    def test_a_row_that_was_renewed_since_the_plan_stays(self, tmp_path: Path) -> None:
        root = items(tmp_path, [1, 2, 60, 70])
        plan = plan_row_retention(opened(root), [BY_TIME])
        lance.dataset(str(root / "items.lance")).update({"at": "now()"}, where="id = 2")
        assert expire_rows(opened(root), plan, engine=None).rows_removed == 1
        assert ids(root) == [0, 1, 2]

    def test_a_row_that_is_renewed_during_the_delete_stays(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        root = items(tmp_path, [1, 2, 60, 70])
        plan = plan_row_retention(opened(root), [BY_TIME])
        path = str(root / "items.lance")
        once_before(monkeypatch, lambda: lance.dataset(path).update({"at": "now()"}, where="id = 2"))
        shorten_waits(monkeypatch)
        (stats,) = expire_rows(opened(root), plan, engine=None).tables
        assert (stats.rows_removed, stats.attempts) == (1, 2)
        assert ids(root) == [0, 1, 2]

    @pytest.mark.night("combinations")
    @pytest.mark.slow
    @pytest.mark.parametrize("kind", ["BTREE", "BITMAP"])
    @pytest.mark.parametrize("nullable", [True, False])
    def test_old_entries_in_an_index_take_no_row_that_is_fresh(self, tmp_path: Path, kind: str, nullable: bool) -> None:
        """An index that Lance before 9 folded says of an updated row what it said before, too."""
        ages = [60] * 8 + [1] * 12
        updated_and_folded(tmp_path, ages, [0, 1, 2], kind=kind, nullable=nullable, release=text_release(3))
        dataset = lance.dataset(str(tmp_path / "items.lance"))
        plan = plan_row_retention(opened(tmp_path), [BY_TIME])
        (table,) = plan.tables
        below = clock_of(dataset, "at", None).below(table.cut)
        assert dataset.count_rows(filter=below.removesuffix(" IS TRUE")) == 8, "the index is wrong"
        assert (table.expired, len(table.sample)) == (5, 5)
        deletes = [delete_in_fragment(dataset, number, below) for number in fragment_ids(dataset)]
        assert sum(done.rows for done in deletes if done is not None) == 5, "as a task of Spark deletes"
        (stats,) = expire_rows(opened(tmp_path), plan, engine=None).tables
        assert (stats.rows_removed, stats.rows_left, stats.error) == (5, 0, None)
        assert ids(tmp_path) == [0, 1, 2, *range(8, 20)]

    def test_old_rows_that_arrive_during_the_delete_are_for_the_next_run(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        root = items(tmp_path, [1, 2, 60])
        plan = plan_row_retention(opened(root), [BY_TIME])
        late = pa.table({"id": pa.array([9], pa.int64()), "at": stamps([90])})
        once_before(monkeypatch, lambda: lance.write_dataset(late, str(root / "items.lance"), mode="append") and None)
        (stats,) = expire_rows(opened(root), plan, engine=None).tables
        assert (stats.rows_removed, stats.rows_left) == (1, 1)
        assert ids(root) == [0, 1, 9]

    def test_a_run_that_was_killed_on_another_machine_is_told_by_watching(self, tmp_path: Path) -> None:
        root = items(tmp_path, [1, 2, 60])
        plan = plan_row_retention(opened(root), [BY_TIME])
        graph = opened(root, lease_ttl_seconds=0.3)
        left_held(graph.storage, EXPIRE_ROWS_LEASE_PATH)
        assert expire_rows(graph, plan, engine=None).rows_removed == 1
        assert ids(root) == [0, 1]

    def test_a_run_at_work_on_this_machine_is_refused_at_once(self, tmp_path: Path) -> None:
        root = items(tmp_path, [1, 2, 60])
        plan, graph = plan_row_retention(opened(root), [BY_TIME]), opened(root)
        left_held(graph.storage, EXPIRE_ROWS_LEASE_PATH, pid=os.getpid(), machine=this_machine())
        with pytest.raises(LeaseHeld, match="holds the row retention lease"):
            expire_rows(graph.with_run(LeavesPauses()), plan, engine=None)
        assert ids(root) == [0, 1, 2]

    def test_conflicts_without_end_stop_and_delete_nothing(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        root = items(tmp_path, [1, 2, 60, 70])
        plan = plan_row_retention(opened(root), [BY_TIME])

        def beaten() -> None:
            lance.dataset(str(root / "items.lance")).update({"at": "at"}, where="id = 2")

        when_asked(monkeypatch, lance.LanceDataset, "delete", beaten, times=None)
        shorten_waits(monkeypatch)
        (stats,) = expire_rows(opened(root), plan, engine=None).tables
        assert "other writers were faster 5 times; nothing was deleted" in (stats.error or "")
        assert ids(root) == [0, 1, 2, 3]

    def test_nothing_is_deleted_from_a_table_that_was_made_anew(self, tmp_path: Path) -> None:
        root = items(tmp_path, [1, 2, 60, 70])
        plan, made = plan_row_retention(opened(root), [BY_TIME]), list[int]()

        def late(dataset: Any, *rest: Any) -> int:
            if not made:
                shutil.rmtree(root / "items.lance")
                items(root, [90, 3, 4])
                lance.dataset(str(root / "items.lance")).update_config({"one": "more"})
                made.append(1)
            return apply.delete_here(dataset, *rest)

        with pytest.raises(StalePlan, match="another table than the one that was counted"):
            apply.expire_plain(opened(root), plan, plan.tables[0], late)
        assert ids(root) == [0, 1, 2]

    def test_another_column_that_got_the_name_is_not_the_one_that_was_counted(self, tmp_path: Path) -> None:
        root = items(tmp_path, [1, 2, 60, 70])
        plan = plan_row_retention(opened(root), [BY_TIME])
        table = lance.dataset(str(root / "items.lance"))
        table.alter_columns({"path": BY_TIME.property, "name": "renamed"})
        table.add_columns({BY_TIME.property: "renamed"})
        (stats,) = expire_rows(opened(root), plan, engine=None).tables
        assert "or has other properties: it was renamed, altered" in (stats.error or "")
        assert ids(root) == [0, 1, 2, 3]

    def test_a_table_whose_counted_version_is_gone_is_planned_again(self, tmp_path: Path) -> None:
        root = items(tmp_path, [1, 2, 60, 70])
        plan = plan_row_retention(opened(root), [BY_TIME])
        table = lance.dataset(str(root / "items.lance"))
        table.update_config({"one": "more"})
        table.cleanup_old_versions(timedelta(0))
        (stats,) = expire_rows(opened(root), plan, engine=None).tables
        assert "which was counted, is gone: nothing tells whether the table is still the same" in (stats.error or "")
        assert ids(root) == [0, 1, 2, 3]

    def test_a_table_that_cannot_be_read_after_its_delete_says_what_it_lost(self, tmp_path: Path) -> None:
        root = items(tmp_path, [1, 2, 60])
        plan = plan_row_retention(opened(root), [BY_TIME])

        def gone(*rest: Any) -> int:
            removed = apply.delete_here(*rest)
            shutil.rmtree(root / "items.lance")
            return removed

        (stats,) = expire_rows(opened(root), plan, engine=None, delete=gone).tables
        assert stats.rows_removed == 1
        assert "deleted 1 row, but the table could not be read afterwards" in (stats.error or "")

    def test_a_stopped_run_does_not_wait_for_another_attempt(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        root = items(tmp_path, [1, 2, 60, 70])
        plan = plan_row_retention(opened(root), [BY_TIME])
        path = str(root / "items.lance")
        once_before(monkeypatch, lambda: lance.dataset(path).update({"at": "now()"}, where="id = 2"))
        graph = opened(root).with_run(LeavesPauses())
        with pytest.raises(Stopped):
            apply.expire_plain(graph, plan, plan.tables[0], apply.delete_here)
        assert ids(root) == [0, 1, 2, 3]

    def test_a_plan_of_another_place_or_an_altered_one_is_refused(self, tmp_path: Path) -> None:
        for name in ("a", "b"):
            items(tmp_path / name, [1, 2, 60])
        plan = plan_row_retention(opened(tmp_path / "a"), [BY_TIME])
        with pytest.raises(StalePlan, match="is for"):
            expire_rows(opened(tmp_path / "b"), plan, engine=None)
        with pytest.raises(StalePlan, match="altered"):
            expire_rows(opened(tmp_path / "a"), replace(plan, max_share=1.0), engine=None)

    def test_applying_twice_deletes_once(self, tmp_path: Path) -> None:
        root = items(tmp_path, [1, 2, 60])
        plan = plan_row_retention(opened(root), [BY_TIME])
        assert expire_rows(opened(root), plan, engine=None).rows_removed == 1
        version = lance.dataset(str(root / "items.lance")).version
        assert expire_rows(opened(root), plan, engine=None).rows_removed == 0
        assert lance.dataset(str(root / "items.lance")).version == version

    def test_two_runs_of_row_retention_do_not_work_side_by_side(self, tmp_path: Path) -> None:
        root = items(tmp_path, [1, 2, 60])
        graph = opened(root)
        plan = plan_row_retention(graph, [BY_TIME])
        place = LeasePlace(path=EXPIRE_ROWS_LEASE_PATH, name="the row retention lease")
        with (
            committer_lease(graph.storage, purpose="another run", ttl_seconds=60, wait_seconds=0, place=place),
            pytest.raises(LeaseHeld, match="holds the row retention lease"),
        ):
            expire_rows(opened(root), plan, engine=None)
        assert ids(root) == [0, 1, 2]

    def test_who_lost_the_lease_since_the_count_deletes_nothing(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        root = items(tmp_path, [1, 2, 60])
        graph = opened(root)
        plan, looked = plan_row_retention(graph, [BY_TIME]), LanceGateway.refuse_another

        def taken_over_meanwhile(gateway: LanceGateway, dataset: Dataset) -> None:
            looked(gateway, dataset)
            take_over(graph.storage)

        monkeypatch.setattr(LanceGateway, "refuse_another", taken_over_meanwhile)
        (stats,) = expire_rows(graph, plan, engine=None).tables
        assert "was taken over by another run" in (stats.error or "")
        assert ids(root) == [0, 1, 2]

    def test_a_dataset_that_is_frozen_since_the_count_loses_no_row(self, tmp_path: Path) -> None:
        root = items(tmp_path, [1, 2, 60])
        graph = opened(root)
        plan = plan_row_retention(graph, [BY_TIME])

        def frozen_meanwhile(*counted: Any) -> int:
            freeze_graph(opened(root))
            return delete_here(*counted)

        (stats,) = expire_rows(graph, plan, engine=None, delete=frozen_meanwhile).tables
        assert "is frozen by" in (stats.error or "")
        assert ids(root) == [0, 1, 2]

    def test_rows_that_others_deleted_are_not_told_as_expired(self, tmp_path: Path) -> None:
        root = items(tmp_path, [1, 2, 60])
        graph = opened(root)

        def others(*_: Any) -> int:
            lance.dataset(str(root / "items.lance")).delete("id = 2")
            raise StorageError("503")

        plan = plan_row_retention(graph, [BY_TIME])
        (stats,) = expire_rows(graph, plan, engine=None, delete=others).tables
        assert (stats.error, stats.rows_removed, stats.rows_left) == ("503", 0, 0)

    @pytest.mark.parametrize(
        ("fault", "landed", "is_told"),
        [(StorageError, True, False), (CommitConflict, False, False), (CommitConflict, True, True)],
    )
    def test_files_of_a_submitted_delete_stay_unless_it_is_known_not_to_have_landed(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: type[OpsError], landed: bool, is_told: bool
    ) -> None:
        root = items(tmp_path, [1, 2, 60])
        graph = opened(root, spark_stages=(SparkEntry(stage=SparkStage.EXPIRE_ROWS, at_least=0),))
        plan = plan_row_retention(graph, [BY_TIME])

        def submit(_job: str, words: Sequence[str], *_: object) -> DeletesDone:
            options = dict(zip((word.removeprefix("--") for word in words[::2]), words[1::2], strict=True))
            return DeletesDone(
                tasks=(delete_on_worker(Namespace(**options | {"version": int(options["version"])}), [0]),)
            )

        # Of one that landed the reply is lost; a store that repeats a request by itself calls it a conflict.
        when_asked(monkeypatch, lance.LanceDataset, "commit", raising(fault("503")), times=None, after=landed)
        (stats,) = ExpireRows().apply(graph, plan, SILENT, submit).tables
        assert (stats.error is None) is is_told
        assert len(list((root / "items.lance").glob("_deletions/*"))) == landed
        assert ids(root) == ([0, 1] if landed else [0, 1, 2])

    def test_an_age_from_before_1970_is_refused(self, tmp_path: Path) -> None:
        root = items(tmp_path, [1, 2, 60])
        with pytest.raises(InvalidInput, match="the cut is before 1970; nothing was deleted"):
            plan_row_retention(opened(root), [replace(BY_TIME, older_than_secs=100 * 365 * DAY)])

    def test_of_a_frozen_dataset_nothing_is_planned(self, tmp_path: Path) -> None:
        root = items(tmp_path, [1, 2, 60])
        freeze_graph(opened(root))
        with pytest.raises(GraphFrozen):
            plan_row_retention(opened(root), [BY_TIME])
