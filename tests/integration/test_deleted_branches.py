"""An engine deletes a branch between two reads of a verb: that is no damage, and no reason to fail."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from omnigraph_ops.coordination.freezes import unfreeze
from omnigraph_ops.graph import Graph
from omnigraph_ops.graph.layout import COMMITS_DIR, MANIFEST_DIR
from omnigraph_ops.lance.gateway import Dataset, LanceGateway
from omnigraph_ops.models.cleanup import RetentionPolicy
from omnigraph_ops.stages.cleanup.plan import plan_cleanup
from omnigraph_ops.stages.freeze.take import freeze_graph
from omnigraph_ops.stages.orphans.plan import plan_orphans
from tests.conftest import DemoGraph
from tests.support.sidecars import make_branch

BRANCH = "topic"


class Deleting(LanceGateway):
    """Deletes a branch as the engine does, right before or right after it is opened for the so many-th time."""

    def __init__(self, graph: Graph, turn: int, *, after: bool) -> None:
        super().__init__(graph.lance.storage_options)
        self.graph, self.turn, self.after, self.opened = graph, turn, after, 0

    def open(self, uri: str, *, branch: str | None = None, version: int | None = None) -> Dataset:
        self.opened += branch == BRANCH
        is_due = branch == BRANCH and self.opened == self.turn
        if is_due and not self.after:
            self._delete()
        dataset = super().open(uri, branch=branch, version=version)
        if is_due and self.after:
            self._delete()
        return dataset

    def _delete(self) -> None:
        for path in (MANIFEST_DIR, *(p for p in self.graph.format.lineage_datasets if p == COMMITS_DIR)):
            self.graph.open_at(path).branches.delete(BRANCH)


def frozen(graph: Graph) -> None:
    unfreeze(graph, freeze_graph(graph, ttl_seconds=60, reason="test").freeze_id)


def cleaned(graph: Graph) -> None:
    plan = plan_cleanup(graph, RetentionPolicy(keep_versions=1))
    assert not [row.refused for row in plan.tables if row.refused]


VERBS: dict[str, Callable[[Graph], object]] = {
    "cleanup": cleaned,
    "orphans": lambda graph: plan_orphans(graph, older_than_seconds=7 * 86_400),
    "freeze": frozen,
}


@pytest.mark.slow
@pytest.mark.parametrize("after", [False, True], ids=["before it is opened", "after it is opened"])
@pytest.mark.parametrize("turn", [1, 2])
@pytest.mark.parametrize("verb", VERBS)
def test_a_branch_that_goes_meanwhile_is_no_damage(
    demo_graph: DemoGraph, stamp: int, verb: str, turn: int, *, after: bool
) -> None:
    graph = demo_graph(stamp=stamp, loads=2, rows=6, node_types=1)
    make_branch(graph, BRANCH)
    deleting = Deleting(graph, turn, after=after)
    VERBS[verb](replace(graph, context=replace(graph.context, lance=deleting)))
    assert deleting.opened >= turn
    assert BRANCH not in graph.branches()
