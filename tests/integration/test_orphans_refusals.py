"""Orphans refuses rather than guesses: unreadable parts, foreign plans, recoveries, ages at which anybody may write."""

from __future__ import annotations

import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from omnigraph_ops.config.settings import Settings
from omnigraph_ops.coordination import sealed
from omnigraph_ops.coordination.fence import fenced
from omnigraph_ops.errors import ApprovalMissing, CorruptGraph, InvalidInput, RecoveryPending, StalePlan
from omnigraph_ops.graph.sidecars import sidecar_path
from omnigraph_ops.lance.gateway import LanceGateway
from omnigraph_ops.models.orphans import OrphanFile, OrphanKind
from omnigraph_ops.stages.orphans.apply import apply_orphans
from omnigraph_ops.stages.orphans.plan import plan_orphans
from tests.conftest import DemoGraph
from tests.support.edges import when_asked
from tests.support.orphans import (
    KNOWS,
    PERSON,
    age,
    planned,
    plant,
    put,
    run,
)
from tests.support.rows import tree_of
from tests.support.writers import entry_of

SMALL = {"loads": 3, "rows": 8, "node_types": 1}


def test_less_than_an_hour_needs_the_word_that_nobody_writes(demo_graph: DemoGraph) -> None:
    """A fence does not help: a load that began before it has staged files, and goes on after it."""
    graph = demo_graph(**SMALL)
    path = put(graph, f"{entry_of(graph, PERSON).path}/data/young.lance", days=0.01)
    with pytest.raises(ApprovalMissing, match="OMNIGRAPH_OPS_EXCLUSIVE=true"):
        plan_orphans(graph, older_than_seconds=60)
    with fenced(graph) as behind_fence, pytest.raises(ApprovalMissing):
        plan_orphans(behind_fence, older_than_seconds=60)
    alone = graph.with_settings(Settings(exclusive=True))
    plan = plan_orphans(alone, older_than_seconds=60)
    with fenced(graph) as behind_fence, pytest.raises(ApprovalMissing):
        apply_orphans(behind_fence, plan)
    assert graph.storage.exists(path)
    assert apply_orphans(alone, plan).files_removed == 1
    with pytest.raises(InvalidInput):
        plan_orphans(graph, older_than_seconds=-1)


def test_a_dataset_that_cannot_be_read_is_skipped_and_the_rest_goes_on(demo_graph: DemoGraph) -> None:
    graph = demo_graph(**SMALL)
    person, knows = entry_of(graph, PERSON).path, entry_of(graph, KNOWS).path
    plant(graph)
    removable = plant(graph, folder=knows)
    next(Path(graph.uri, person, "_versions").glob("*.manifest")).write_bytes(b"junk")
    age(graph.uri)
    plan, report = run(graph)
    assert [s.path for s in plan.skipped] == [person]
    assert planned(plan) == removable
    assert report.files_removed == len(removable)


@pytest.mark.parametrize("name", ["d12345.manifest", "7.manifest-abc", "7.manifest"])
def test_a_manifest_that_lance_does_not_list_skips_its_dataset(demo_graph: DemoGraph, name: str) -> None:
    graph = demo_graph(**SMALL)
    base = entry_of(graph, PERSON).path
    plant(graph)
    put(graph, f"{base}/_versions/{name}")
    age(graph.uri)
    plan = plan_orphans(graph)
    assert [s.path for s in plan.skipped] == [base]
    assert planned(plan) == {}


def test_an_unreadable_branch_refuses_everything(demo_graph: DemoGraph) -> None:
    graph = demo_graph(**SMALL, lazy_branches=1)
    plant(graph)
    age(graph.uri)
    plan = plan_orphans(graph)
    shutil.rmtree(f"{graph.uri}/__manifest/tree/lazy-1")
    for call in (lambda: plan_orphans(graph), lambda: apply_orphans(graph, plan)):
        with pytest.raises(CorruptGraph, match="'lazy-1' cannot be read"):
            call()
    assert all(graph.storage.exists(path) for path in planned(plan))


def test_nothing_goes_beside_a_recovery(demo_graph: DemoGraph) -> None:
    graph = demo_graph(**SMALL)
    plant(graph)
    plan = plan_orphans(graph)
    graph.storage.write(sidecar_path("01ARYZ6S410000000000000000"), b"{}")
    for call in (lambda: plan_orphans(graph), lambda: apply_orphans(graph, plan)):
        with pytest.raises(RecoveryPending):
            call()
    assert all(graph.storage.exists(path) for path in planned(plan))


def test_altered_expired_and_foreign_plans_are_refused(demo_graph: DemoGraph) -> None:
    graph = demo_graph(**SMALL)
    plant(graph)
    plan = plan_orphans(graph)
    before = tree_of(graph.uri)
    other = OrphanFile(path="_schema.pg", size=1, modified_at=0.0, kind=OrphanKind.DATA)
    for bad, words in (
        (replace(plan, files=(*plan.files, other)), "altered"),
        (sealed.seal(replace(plan, uri="/elsewhere")), "is for /elsewhere"),
        (sealed.seal(replace(plan, expires_at_us=1)), "expired"),
    ):
        with pytest.raises(StalePlan, match=words):
            apply_orphans(graph, bad)
    assert tree_of(graph.uri) == before


@pytest.mark.slow
def test_even_a_signed_plan_takes_nothing_that_is_needed(demo_graph: DemoGraph, stamp: int, tmp_path: Path) -> None:
    graph = demo_graph(stamp=stamp, **SMALL, written_branches=1)
    victim = tmp_path / "victim.lance"
    victim.write_text("mine")
    base = entry_of(graph, PERSON).path
    Path(graph.uri, base, "_indices", "link").symlink_to(tmp_path)
    age(graph.uri)
    everything = [p for p in Path(graph.uri).rglob("*") if p.is_file()]
    paths = {str(p.relative_to(graph.uri)): p.stat() for p in everything}
    paths["../victim.lance"] = paths[f"{base}/_indices/link/victim.lance"] = victim.stat()
    for kind in (OrphanKind.DATA, OrphanKind.DROPPED_TABLE, OrphanKind.DEAD_BRANCH, OrphanKind.OWN_STATE):
        greedy = tuple(
            OrphanFile(path=path, size=info.st_size, modified_at=info.st_mtime, kind=kind)
            for path, info in paths.items()
        )
        report = apply_orphans(graph, sealed.seal(replace(plan_orphans(graph), files=greedy)))
        assert (report.files_removed, len(report.spared)) == (0, len(paths))
    assert victim.exists()
    assert all(p.exists() for p in everything)


def test_a_branch_reference_that_lance_does_not_list_skips_its_dataset(
    demo_graph: DemoGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That of a branch that somebody makes meanwhile, for example."""
    graph = demo_graph(**SMALL)
    plant(graph)
    base = entry_of(graph, PERSON).path
    table = graph.open_head(entry_of(graph, PERSON))
    made = partial(table.create_branch, "hidden")
    when_asked(monkeypatch, LanceGateway, "branches", made, about=f"/{base}$", after=True)
    plan = plan_orphans(graph)
    assert (planned(plan), [s.path for s in plan.skipped]) == ({}, [base])
    assert "the branch reference 'hidden' of" in plan.skipped[0].reason
