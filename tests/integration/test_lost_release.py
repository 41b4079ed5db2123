"""A store that takes no release of a lease any more: what was done under it is reported all the same."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from omnigraph_ops.coordination.state import CLONES_DIR, HOLDS_DIR
from omnigraph_ops.errors import StorageError
from omnigraph_ops.graph import open_graph
from omnigraph_ops.storage.store import Storage
from tests.conftest import DemoGraph
from tests.support.events import items
from tests.support.leases import refuse_releases
from tests.support.orphans import age, plant
from tests.support.rows import rows_everywhere
from tests.support.shell import Cli


def test_every_verb_that_acts_under_the_committer_lease_reports_what_it_did(
    demo_graph: DemoGraph, cli: Cli, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, stamp: int
) -> None:
    graph = demo_graph(stamp=stamp, loads=3, rows=20, node_types=1, drift_tables=("node:Person",))
    rows = rows_everywhere(graph)
    refuse_releases(monkeypatch)

    def did(verb: str) -> dict[str, object]:
        caplog.clear()
        done = cli(f"{verb} --json", graph.uri)
        assert done.code == 0, done
        assert "could not be released" in caplog.text
        return dict(done.json)

    assert did("repair --confirm")["manifest_version"] is not None
    assert did("optimize")["tables"]
    frozen = did("freeze")["freeze_id"]
    assert frozen in str(did(f"unfreeze {frozen}"))
    assert did("cleanup --keep 1 --confirm")["tables"]
    plant(graph)
    age(graph.uri)
    removed = did("orphans --older-than 7d --quarantine --confirm")
    assert removed["files_removed"]
    assert did(f"orphans --restore {removed['quarantine_id']}")
    assert rows_everywhere(open_graph(graph.uri)) == rows


@pytest.mark.parametrize("folder", [HOLDS_DIR, CLONES_DIR])
def test_what_a_run_cannot_tidy_away_takes_back_nothing_that_it_did(
    demo_graph: DemoGraph,
    cli: Cli,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    folder: str,
) -> None:
    graph, delete, delete_tree = demo_graph(loads=3, rows=20), Storage.delete, Storage.delete_tree

    def unless_there(remove: Callable[[Storage, str], None]) -> Callable[[Storage, str], None]:
        def refusing(storage: Storage, path: str) -> None:
            if path.startswith(folder):
                raise StorageError(f"cannot delete {path}: ExpiredToken")
            remove(storage, path)

        return refusing

    with monkeypatch.context() as expired:
        expired.setattr(Storage, "delete", unless_there(delete))
        expired.setattr(Storage, "delete_tree", unless_there(delete_tree))
        done = cli("optimize --json", graph.uri)
    assert done.code == 0, done
    assert {t["error"] for t in done.json["tables"] if t["committed"]} == {None}
    assert "ExpiredToken" in caplog.text


def test_rows_that_expired_are_reported(
    tmp_path_factory: pytest.TempPathFactory, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = items(tmp_path_factory.mktemp("items"), [1, 2, 60])
    refuse_releases(monkeypatch)
    options = "--table table:items --property at --older-than 30d --max-share 0.9"
    done = cli(f"expire-rows {options} --confirm --json", str(root))
    assert (done.code, done.json["tables"][0]["rows_removed"]) == (0, 1)
