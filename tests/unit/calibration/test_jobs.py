"""How whole calls are timed, and what the generated work is."""

from __future__ import annotations

import time
from pathlib import Path
from typing import cast

import pytest

from omnigraph_ops.calibration import jobs
from omnigraph_ops.calibration.jobs import Bench, TimedWork
from omnigraph_ops.models.backup import BackupReport
from omnigraph_ops.models.orphans import OrphansPlan


def bench(folder: Path) -> Bench:
    return Bench(folder=folder, master="local", rows=20)


def test_the_best_of_two_calls_counts_and_each_is_undone() -> None:
    done: list[str] = []

    def run() -> None:
        if not done:
            time.sleep(0.2)
        done.append("run")

    work = TimedWork(size=7, here=run, there=lambda _submit: None, undo=lambda: done.append("undo"))
    sample = jobs._best(work, work.here)
    assert done == ["run", "undo"] * 2
    assert sample.size == 7
    assert sample.seconds < 0.2


def test_a_backup_copies_the_bytes_that_are_counted(tmp_path: Path) -> None:
    work = jobs._copies(bench(tmp_path), tmp_path / "made", 3)
    for _ in range(2):
        report = cast("BackupReport", work.here())
        work.undo()
        assert report.copied.bytes == report.total.bytes
        assert 0.8 * work.size < report.copied.bytes <= work.size


def test_evidence_is_of_a_table_whose_fragments_all_differ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []

    class Counted(jobs.BytesRead):
        def count(self, number: int) -> None:
            read.append(number)

    monkeypatch.setattr(jobs, "BytesRead", Counted)
    work = jobs._comparisons(bench(tmp_path), tmp_path / "made", 8)
    work.here()
    assert 0 < sum(read) <= work.size


def test_half_of_the_generated_files_are_orphans(tmp_path: Path) -> None:
    work = jobs._searches(bench(tmp_path), tmp_path / "made", 9_000)
    plan = cast("OrphansPlan", work.here())
    assert work.size == 30
    assert (plan.total_files, plan.young_files >= 15) == (15, True)
    assert plan.listed_files > 30
