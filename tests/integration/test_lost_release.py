"""A store that takes no release of a lease any more: what was done under it is reported all the same."""

from __future__ import annotations

import pytest

from omnigraph_ops.graph import open_graph
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


def test_rows_that_expired_are_reported(
    tmp_path_factory: pytest.TempPathFactory, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = items(tmp_path_factory.mktemp("items"), [1, 2, 60])
    refuse_releases(monkeypatch)
    options = "--table table:items --property at --older-than 30d --max-share 0.9"
    done = cli(f"expire-rows {options} --confirm --json", str(root))
    assert (done.code, done.json["tables"][0]["rows_removed"]) == (0, 1)
