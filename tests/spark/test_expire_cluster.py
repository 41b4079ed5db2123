"""The job `expire` on a standalone cluster that loses a worker or its driver, and that does tasks twice."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from omnigraph_ops.spark import submit
from omnigraph_ops.spark.submit import Submitter
from tests.spark.test_expire_job import assert_no_litter, expired, look
from tests.support.events import ids, items
from tests.support.held import HELD_APPLICATION, Held
from tests.support.spark_cluster import Cluster, environment

pytestmark = [pytest.mark.spark, pytest.mark.night, pytest.mark.slow, pytest.mark.xdist_group("spark-standalone")]
AGES: list[int | None] = [0, 10, 29, 31, 60, None] * 4
KEPT = [n for n, age in enumerate(AGES) if age is None or age < 30]
_LONGEST_SECONDS = 300


def hold(patch: pytest.MonkeyPatch, marks: Path) -> Held:
    """Tasks stop when they have deleted, before they do it again and say so."""
    made = Held.at("delete", marks)
    for name, value in (environment() | made.environment).items():
        patch.setenv(name, value)
    patch.setattr(submit, "APPLICATION", HELD_APPLICATION)
    return made


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    return items(tmp_path / "data", AGES, rows_per_file=4)


def test_a_lost_driver_deletes_nothing_and_a_lost_worker_and_tasks_done_twice_cost_no_row(
    spark: Cluster, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = look(root)
    hold(monkeypatch, tmp_path / "first")
    monkeypatch.setenv("DRIVER_DIES", "1")
    error = expired(root, Submitter(master=spark.master_url)).error
    assert error is not None and "was killed (SIGKILL) and left no outcome" in error
    assert look(root) == before
    monkeypatch.delenv("DRIVER_DIES")
    held = hold(monkeypatch, tmp_path / "again")
    with ThreadPoolExecutor() as pool:
        work = pool.submit(expired, root, Submitter(master=spark.master_url))
        held.wait_for(2, work.done, lambda: spark.log("master")[-3000:])
        spark.kill("worker-2")
        held.open()
        stats = work.result(_LONGEST_SECONDS)
    spark.add_worker("worker-2")
    assert (stats.rows_removed, stats.rows_left, stats.attempts, stats.error) == (8, 0, 1, None)
    assert ids(root) == KEPT
    touched = sum(1 for start in range(0, len(AGES), 4) if any((age or 0) > 30 for age in AGES[start : start + 4]))
    assert held.came() >= touched
    # One of the worker that was killed may be left, between its file and its note; orphans finds it.
    assert_no_litter(root, touched, more=1)
