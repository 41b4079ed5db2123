"""A freeze on s3://: the same cut, and a copy under another prefix that reads nothing of the original."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from omnigraph_ops.coordination.freezes import stored_tags, unfreeze
from omnigraph_ops.demo import DemoSpec
from omnigraph_ops.errors import GraphFrozen
from omnigraph_ops.graph import open_graph
from omnigraph_ops.models.cleanup import RetentionPolicy
from omnigraph_ops.stages.cleanup.apply import cleanup_all
from omnigraph_ops.stages.cleanup.plan import plan_cleanup
from omnigraph_ops.stages.freeze.files import cut_files, with_checksums
from omnigraph_ops.stages.freeze.observe import verify_cut
from omnigraph_ops.stages.freeze.roots import relocation
from omnigraph_ops.stages.freeze.stage import file_list
from omnigraph_ops.stages.freeze.take import freeze_graph, list_holds
from omnigraph_ops.stages.optimize.run import optimize_all
from tests.support.fault_proxy import losing_one_reply
from tests.support.rows import rows_everywhere

pytestmark = pytest.mark.s3


@pytest.mark.parametrize("stamp", [6])
def test_a_copy_under_another_prefix_is_the_graph_at_the_freeze(
    s3_graph: Callable[[DemoSpec], str], stamp: int
) -> None:
    graph = open_graph(s3_graph(DemoSpec(stamp=stamp, node_types=1, loads=2, rows=8)))
    # Here, because a branch records the root that it was made under.
    graph.manifest().create_branch("lazy")
    rows = rows_everywhere(graph)
    freeze = freeze_graph(graph, reason="backup")
    with pytest.raises(GraphFrozen):
        optimize_all(graph)
    assert verify_cut(graph, freeze) == ()
    files = with_checksums(graph, cut_files(graph, freeze))
    assert all(f.normalized.startswith(f"{graph.uri}/") for f in file_list(graph, freeze.freeze_id, files).files)
    new_root = f"{graph.uri.rpartition('/')[0]}/copy[{stamp}]*.omni"
    copy = graph.storage.at(new_root)
    moved = {r.file: r.data for r in relocation(graph, files, new_root)}
    assert moved
    for file in files:
        copy.write(file.file, moved.get(file.file) or graph.storage.read(file.source))
    assert list_holds(graph).holds[0].problems == ()
    unfreeze(graph, freeze.freeze_id)
    assert stored_tags(graph) == {}
    graph.storage.delete_tree("")
    opened = open_graph(new_root)
    assert rows_everywhere(opened) == rows
    assert not optimize_all(opened).failed
    cleanup_all(opened, plan_cleanup(opened, RetentionPolicy(keep_versions=1)))
    assert rows_everywhere(opened).keys() == rows.keys()


@pytest.mark.parametrize("status", [None, 503])
def test_a_lost_reply_to_a_tag_costs_no_freeze(
    s3: str, s3_graph: Callable[[DemoSpec], str], monkeypatch: pytest.MonkeyPatch, status: int | None
) -> None:
    uri = s3_graph(DemoSpec(node_types=1, loads=1, rows=5))
    with losing_one_reply(s3, "^PUT .*/_refs/tags/", 2, status) as proxy, monkeypatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", proxy.url)
        freeze = freeze_graph(open_graph(uri), reason="backup")
    assert len(proxy.lost) == 1
    graph = open_graph(uri)
    assert verify_cut(graph, freeze) == ()
    assert sorted(name for tags in stored_tags(graph).values() for _, name in tags) == sorted(
        pin.tag for pin in freeze.cut.pins
    )
