"""A process that was stopped right before its commit goes on when others have taken over; writers that overtake."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from omnigraph_ops.config.settings import Settings
from omnigraph_ops.coordination import window
from omnigraph_ops.coordination.rewrites import abandon
from omnigraph_ops.coordination.state import LEASE_PATH
from omnigraph_ops.errors import StorageError
from omnigraph_ops.graph import open_graph
from omnigraph_ops.graph.sidecars import write_sidecar
from omnigraph_ops.lance.gateway import LanceFailure, LanceGateway
from omnigraph_ops.models.health import CheckStatus
from omnigraph_ops.progress import Lines
from omnigraph_ops.stages.optimize.run import optimize_all, optimize_table, plan_optimize
from omnigraph_ops.stages.recovery.check import check
from omnigraph_ops.stages.recovery.recover import recover
from omnigraph_ops.storage.store import Storage
from tests.conftest import DemoGraph
from tests.support.beside import Beside
from tests.support.edges import raising, when_asked, when_rewritten
from tests.support.rows import rows_of, tree_of
from tests.support.writers import copies, drift, entry_of, write

pytestmark = pytest.mark.slow

PERSON = "node:Person"
SIDECAR = "01ARYZ6S410000000000000000"
_RUN = """
import sys
from omnigraph_ops.coordination import window
from omnigraph_ops.errors import StorageError
from omnigraph_ops.graph import open_graph
from omnigraph_ops.stages.optimize import units
from omnigraph_ops.stages.optimize.run import optimize_table
from omnigraph_ops.config.settings import Settings

def stop():
    print("here", flush=True)
    sys.stdin.readline()

covered, commit = window.ArmedWindow._is_covered, units.commit_results

def graphs(self, *arguments):
    found = covered(self, *arguments)
    stop() if self.unit == sys.argv[3] else None
    return found

def plain(*arguments, **options):
    stop()
    return commit(*arguments, **options)

window.ArmedWindow._is_covered, units.commit_results = graphs, plain
graph = open_graph(sys.argv[1], Settings(lease_ttl_seconds=1, small_table_bytes=0))
try:
    optimize_table(graph, sys.argv[2])
except Exception as error:
    print(type(error).__name__, error, flush=True)
"""


@contextmanager
def stopped(uri: str, table: str, unit: str) -> Iterator[None]:
    """An optimize that stands still right before it commits that unit, for the block, and then goes on."""
    command = [sys.executable, "-c", _RUN, uri, table, unit]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "here\n"
        process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            process.send_signal(signal.SIGCONT)
            process.communicate("\n", timeout=120)


@pytest.mark.night("combinations")
@pytest.mark.parametrize("unit", ["fold", "rewrite"])
def test_what_it_made_is_still_there_when_it_commits(demo_graph: DemoGraph, stamp: int, unit: str) -> None:
    graph = demo_graph(stamp=stamp, node_types=1, loads=3, settings=Settings(lease_ttl_seconds=1))
    rows, said = rows_of(graph), list[str]()
    with stopped(graph.uri, PERSON, unit):
        assert [o.action for o in recover(graph, grace_seconds=0).outcomes] == ["rolled_back"]
        abandon(graph, entry_of(graph, PERSON).path, said.append)
    assert recover(graph, grace_seconds=0).status is CheckStatus.CLEAN
    assert check(graph).drift == ()
    assert rows_of(open_graph(graph.uri)) == rows
    assert not optimize_table(open_graph(graph.uri), PERSON).error


def test_on_plain_lance_too(tmp_path: Path) -> None:
    uri = str(tmp_path / "items.lance")
    for number in range(4):
        lance.write_dataset(pa.table({"n": [number]}), uri, mode="append" if number else "create")
    plain = open_graph(uri, Settings(lease_ttl_seconds=1))
    (entry,) = plain.state().entries
    with stopped(uri, entry.table_key, "rewrite"):
        abandon(plain, entry.path, lambda _text: None)
    assert sorted(lance.dataset(uri).to_table()["n"].to_pylist()) == [0, 1, 2, 3]


def test_a_rewrite_of_a_plain_dataset_that_lost_a_file_is_not_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lance does not look whether the files of a commit are there, and nobody recovers a plain dataset."""
    place, lost = tmp_path / "items.lance", list[Path]()
    for number in range(4):
        lance.write_dataset(pa.table({"n": [number]}), str(place), mode="append" if number else "create")
    there = set(place.glob("data/*"))

    def losing() -> None:
        for file in set(place.glob("data/*")) - there:
            file.unlink()
            lost.append(file)

    when_asked(monkeypatch, Storage, "create", losing, about=f"^{LEASE_PATH}-", times=None)
    graph = open_graph(str(place), Settings(small_table_bytes=0))
    with pytest.raises(StorageError, match="is not there as it was written; nothing was committed"):
        optimize_table(graph, "table:items")
    assert lost
    dataset = lance.dataset(str(place))
    assert (dataset.version, dataset.to_table()["n"].to_pylist()) == (4, [0, 1, 2, 3])


@pytest.mark.usefixtures("interruptible")
def test_an_interrupted_commit_of_a_store_is_known_before_the_interrupt_is_raised() -> None:
    ended: list[str] = []

    def slow() -> bool:
        os.kill(os.getpid(), signal.SIGINT)
        ended.append("put")
        return True

    with pytest.raises(KeyboardInterrupt):
        window._to_its_end(slow)
    assert ended == ["put"]


def test_recover_publishes_the_version_that_it_proved(demo_graph: DemoGraph, stamp: int) -> None:
    """An engine knows no lease: between the look and the publish it finishes our sidecar and goes on writing."""
    graph = demo_graph(stamp=stamp, node_types=1)
    entry, rows = entry_of(graph, PERSON), rows_of(graph)
    drift(graph, PERSON, lambda head: head.optimize.compact_files())
    write_sidecar(graph, entry, SIDECAR, graph.uri)
    engine = Beside(lambda: drift(graph, PERSON, copies("engine-")))
    (outcome,) = recover(graph.with_run(engine), grace_seconds=0).outcomes
    assert (outcome.action, "moved while it was looked at" in outcome.detail) == ("deferred", True)
    assert (entry_of(graph, PERSON), rows_of(graph)) == (entry, rows)


def test_an_index_of_a_column_that_is_gone_is_not_committed(
    demo_graph: DemoGraph, stamp: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = demo_graph(stamp=stamp, node_types=1, settings=Settings(small_table_bytes=0))

    def dropped() -> None:
        write(open_graph(graph.uri), PERSON, lambda head: head.drop_columns(["bio"]))

    when_asked(monkeypatch, LanceGateway, "clone", dropped, after=True)
    heard: list[str] = []
    # What the schema declares cannot be built any more, which is for whoever dropped the column.
    with suppress(LanceFailure):
        optimize_table(graph, PERSON, progress=Lines(heard.append))
    assert any("a column was changed or dropped while its index was built" in text for text in heard)
    indexes = graph.open_pinned(entry_of(graph, PERSON)).describe_indices()
    assert all("<unknown>" not in index.field_names for index in indexes)


def test_indexes_of_a_small_table_do_not_wait_for_a_rewrite_that_fails(
    demo_graph: DemoGraph, stamp: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = demo_graph(stamp=stamp, node_types=1)
    when_rewritten(monkeypatch, raising(OSError("the disk is full")), times=None)
    (stats,) = optimize_all(graph, tables=[PERSON]).failed
    assert stats.error is not None and "the disk is full" in stats.error
    (plan,) = plan_optimize(graph, tables=(PERSON,)).tables
    assert plan.folds == (), "the indexes are folded all the same"
    before = set(tree_of(graph.uri))
    assert optimize_all(graph, tables=[PERSON]).failed
    assert {path for path in set(tree_of(graph.uri)) - before if "_indices" in path} == set()
