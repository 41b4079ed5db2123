"""What a restore says of the graph that it made."""

from __future__ import annotations

from omnigraph_ops.models.backup import RestoreReport, Tally
from omnigraph_ops.stages.backup.stage import restore_view


def facts(relocated: int) -> dict[str, str]:
    report = RestoreReport(
        backup="/backups/1",
        uri="/link/graph",
        total=Tally(files=9, bytes=90),
        relocated=relocated,
        branches=2,
        tables=3,
        rows=4,
        seconds=1.0,
        problems=(),
    )
    return dict(restore_view(report).facts)


def test_a_graph_whose_branches_record_its_place_is_to_be_opened_by_that_path() -> None:
    assert facts(relocated=2)["Open it"].startswith("by this address alone")
    assert "Open it" not in facts(relocated=0)


def test_servers_that_had_a_graph_open_there_are_to_be_restarted() -> None:
    assert "omnigraph-server" in facts(relocated=0)["Restart"]
