"""Decisions about a journal of a rewrite, from facts alone; and the journal's own files."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from omnigraph_ops.coordination import rewrite_journal
from omnigraph_ops.coordination.rewrite_journal import (
    Attempt,
    Fate,
    FinishedTask,
    JournalTask,
    MadeFile,
    RewriteJournal,
    decide,
    summary,
)
from omnigraph_ops.coordination.rewrites import batches
from omnigraph_ops.lance.rewrites import Current
from omnigraph_ops.storage.store import Storage

SOURCES = frozenset({(1, "a"), (2, "b")})
HERE = Current(version=7, sources=SOURCES | {(3, "c")}, stable_row_ids=True, covered=())
TABLE = "nodes/00000000000000aa"
ULID = "01ARYZ6S410000000000000000"


def done(attempt: str) -> FinishedTask:
    return FinishedTask(index=0, attempt=attempt, result="{}", files=(MadeFile(path=f"{attempt}.lance", size=1),))


@pytest.mark.parametrize(
    ("finished", "damaged", "referenced", "fate", "chosen"),
    [
        ("", "", "", Fate.TODO, None),
        ("x", "", "", Fate.FINISHED, "x"),
        ("xy", "", "", Fate.FINISHED, "x"),
        ("xy", "x", "", Fate.FINISHED, "y"),
        ("x", "x", "", Fate.TODO, None),
        ("xy", "", "y", Fate.COMMITTED, "y"),
    ],
)
def test_the_fate_of_a_task_whose_fragments_are_there(
    finished: str, damaged: str, referenced: str, fate: Fate, chosen: str | None
) -> None:
    attempts = [done(attempt) for attempt in finished]
    whole = {file for f in attempts if f.attempt not in damaged for file in f.files}
    expected = (fate, None if chosen is None else Attempt(index=0, attempt=chosen))
    assert decide(attempts, fits=True, referenced={f"{a}.lance" for a in referenced}, whole=whole) == expected


def test_a_task_whose_fragments_changed_is_lost_unless_it_is_committed() -> None:
    whole = frozenset(done("x").files)
    assert decide([done("x")], fits=False, referenced=(), whole=whole) == (Fate.LOST, None)
    assert decide([], fits=False, referenced=(), whole=whole) == (Fate.LOST, None)
    assert decide([done("x")], fits=False, referenced=("x.lance",), whole=whole)[0] is Fate.COMMITTED


def test_a_result_may_not_replace_fragments_that_an_index_covers_in_part() -> None:
    assert replace(HERE, covered=(frozenset({1, 2}), frozenset({3}))).accepts(SOURCES)
    assert not replace(HERE, covered=(frozenset({1, 3}),)).accepts(SOURCES)


def test_the_summary_counts_what_there_is() -> None:
    assert summary([Fate.TODO, Fate.TODO, Fate.COMMITTED]) == "1 committed, 2 todo"
    assert summary([]) == "nothing planned"


def test_batches_cover_everything_once() -> None:
    names = [Attempt(index=i, attempt="a") for i in range(5)]
    assert list(batches(names, 0)) == [tuple(names)]
    assert [len(b) for b in batches(names, 2)] == [2, 2, 1]
    assert list(batches([], 0)) == []


def test_results_are_committed_in_the_order_of_their_rows() -> None:
    names = [Attempt(index=i, attempt="a") for i in (3, 0, 2)]
    assert [n.index for b in batches(names, 0) for n in b] == [0, 2, 3]


def test_a_journal_comes_back_as_it_was_written(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    plan = RewriteJournal(
        rewrite_id=ULID,
        table_key="node:A",
        table_path=TABLE,
        read_version=3,
        tasks=(JournalTask(index=0, fragment_ids=(1, 2), source_bytes=9, payload="{}"),),
        created_at_us=1,
        owner="me",
    )
    rewrite_journal.begin(storage, plan)
    twice = [finished(0, "0" * 12), finished(0, "1" * 12)]
    for one in twice:
        rewrite_journal.record(storage, TABLE, ULID, one)
    assert rewrite_journal.open_journals(storage, TABLE) == (ULID,)
    found = rewrite_journal.read_journal(storage, TABLE, ULID)
    assert (found.plan, found.finished, found.problems) == (plan, tuple(twice), ())
    assert rewrite_journal.named_files(storage, {TABLE}) == {"f-000000000000", "f-111111111111"}
    assert rewrite_journal.named_files(storage, {"nodes/00000000000000bb"}) == frozenset()
    rewrite_journal.close(storage, TABLE, ULID)
    assert rewrite_journal.open_journals(storage, TABLE) == ()


def test_a_damaged_journal_says_what_is_damaged(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    rewrite_journal.record(storage, TABLE, ULID, finished(0, "0" * 12))
    folder = f"{rewrite_journal.table_folder(TABLE)}/{ULID}"
    storage.write(f"{folder}/plan.json", b"{")
    storage.write(f"{folder}/task-00001.111111111111.json", b"junk")
    storage.write(f"{folder}/task-00002.222222222222.json", storage.read(f"{folder}/task-00000.000000000000.json"))
    found = rewrite_journal.read_journal(storage, TABLE, ULID)
    assert found.plan is None
    assert [f.index for f in found.finished] == [0]
    assert len(found.problems) == 3


@pytest.mark.parametrize("changed", ["result", "files"])
def test_a_result_that_was_changed_in_the_journal_is_not_used(tmp_path: Path, changed: str) -> None:
    storage = Storage(str(tmp_path))
    rewrite_journal.record(storage, TABLE, ULID, finished(0, "0" * 12))
    path = f"{rewrite_journal.table_folder(TABLE)}/{ULID}/task-00000.000000000000.json"
    document = json.loads(storage.read(path))
    document[changed] = "[]" if changed == "result" else []
    storage.write(path, json.dumps(document).encode())
    found = rewrite_journal.read_journal(storage, TABLE, ULID)
    assert found.finished == ()
    assert f"{path} is not as its task wrote it" in found.problems
    kept = {"f-000000000000"} if changed == "result" else set()
    assert rewrite_journal.named_files(storage, {TABLE}) == kept, "its files are still known"


def test_a_result_of_an_earlier_release_is_used(tmp_path: Path) -> None:
    storage, before = Storage(str(tmp_path)), finished(0, "0" * 12)
    rewrite_journal.record(storage, TABLE, ULID, before)
    path = f"{rewrite_journal.table_folder(TABLE)}/{ULID}/task-00000.000000000000.json"
    document = json.loads(storage.read(path))
    assert document.pop("digest").startswith("sha256:")
    storage.write(path, json.dumps(document).encode())
    assert rewrite_journal.read_journal(storage, TABLE, ULID).finished == (before,)


def test_the_folder_says_which_table_it_is() -> None:
    assert rewrite_journal.table_path_of(rewrite_journal.table_folder(TABLE)) == TABLE


def finished(index: int, attempt: str) -> FinishedTask:
    return FinishedTask(index=index, attempt=attempt, result="{}", files=(MadeFile(path=f"f-{attempt}", size=1),))
