"""Plans whose files are in Parquet parts, as Spark makes them: applied part by part, or not at all."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from pathlib import Path

import pytest

from omnigraph_ops.coordination import sealed
from omnigraph_ops.errors import StalePlan
from omnigraph_ops.graph import Graph
from omnigraph_ops.graph.layout import new_ulid
from omnigraph_ops.models.orphans import FilesInParts, OrphanFile, OrphanKind, OrphansPlan
from omnigraph_ops.stages.orphans.apply import apply_orphans
from omnigraph_ops.stages.orphans.candidates import Candidate, Totals, described, files_of, folder_of, put_part
from omnigraph_ops.stages.orphans.plan import plan_orphans
from omnigraph_ops.stages.orphans.quarantine import list_quarantines, purge, restore
from omnigraph_ops.stages.orphans.stage import Orphans, plan_view
from omnigraph_ops.views import terminal
from tests.conftest import DemoGraph
from tests.support.orphans import PERSON, age, below, plant, put
from tests.support.rows import rows_everywhere
from tests.support.writers import entry_of

pytestmark = pytest.mark.slow

SMALL = {"loads": 2, "rows": 6, "node_types": 1}
FOLDER = folder_of(new_ulid())
_ROWS = 2_000


@pytest.fixture
def graph(demo_graph: DemoGraph) -> Graph:
    """Leftovers, a dead branch that goes, and one that stays because of a young file."""
    made = demo_graph(**SMALL)
    age(made.uri, days=30)
    table = entry_of(made, PERSON).path
    plant(made)
    plant(made, folder=f"{table}/tree/goes")
    plant(made, folder=f"{table}/tree/stays")
    put(made, f"{table}/tree/stays/data/{'1' * 32}.lance", days=0)
    return made


def in_parts(graph: Graph, plan: OrphansPlan, rows_per_part: int = 7) -> OrphansPlan:
    """The same plan with its files, and those of the groups that stay, in parts. Writes them."""
    totals, staying = Totals(), {g.path for g in plan.groups if g.kept is not None}
    kept = [
        OrphanFile(path=path, size=1, modified_at=0.0, kind=OrphanKind.DEAD_BRANCH)
        for group in staying
        for path in sorted(below(graph, group))
    ]
    groups = sorted((g.path for g in plan.groups), key=len, reverse=True)
    candidates = [
        Candidate(file=file, group=next((g for g in groups if file.path.startswith(f"{g}/")), None))
        for file in sorted((*plan.files, *kept), key=lambda f: f.path[::-1])
    ]
    totals.add(candidates)
    parts = FilesInParts(
        folder=FOLDER,
        parts=tuple(
            put_part(graph.storage, FOLDER, f"files-000000-{n:06d}.{0:032x}.parquet", candidates[n : n + rows_per_part])
            for n in range(0, len(candidates), rows_per_part)
        ),
        places=(),
        sample=(),
        unknown=len(plan.unknown),
    )
    return sealed.seal(replace(plan, files=(), parts=described(graph.storage, parts, totals, staying)))


def going(plan: OrphansPlan) -> tuple[tuple[str, ...], ...]:
    """The table of what goes, as a person sees it."""
    (rows,) = (section.rows for section in plan_view(plan).sections if section.title == "Goes")
    return rows


def test_a_plan_in_parts_says_and_does_what_the_plan_says(graph: Graph) -> None:
    plan, rows = plan_orphans(graph), rows_everywhere(graph)
    assert {g.kept is None for g in plan.groups} == {True, False}
    parted = in_parts(graph, plan)
    assert sorted(files_of(graph.storage, parted), key=lambda f: f.path) == list(plan.files)
    assert (parted.total_files, parted.total_bytes) == (len(plan.files), plan.total_bytes)
    assert parted.shown_files == plan.files
    assert going(parted) == going(plan)
    assert Orphans().question(parted).subject == Orphans().question(plan).subject
    assert FOLDER in terminal.text(plan_view(parted))
    stays = below(graph, next(g.path for g in plan.groups if g.kept is not None))
    report = apply_orphans(graph, parted)
    assert (report.files_removed, report.spared, report.failed) == (len(plan.files), (), ())
    assert below(graph, next(g.path for g in plan.groups if g.kept is not None)) == stays
    assert not any(Path(graph.uri, f.path).exists() for f in plan.files)
    assert rows_everywhere(graph) == rows


def test_a_quarantine_of_parts_outlives_its_plan(graph: Graph) -> None:
    plan = plan_orphans(graph, quarantine=True)
    before = {f.path: Path(graph.uri, f.path).read_bytes() for f in plan.files}
    report = apply_orphans(graph, in_parts(graph, plan))
    graph.storage.delete_tree(FOLDER)
    assert report.quarantine_id is not None
    (listed,) = list_quarantines(graph).quarantines
    assert (listed.files, listed.bytes) == (len(plan.files), plan.total_bytes)
    assert restore(graph, report.quarantine_id).failed == ()
    assert {path: Path(graph.uri, path).read_bytes() for path in before} == before
    again = apply_orphans(graph, in_parts(graph, plan_orphans(graph, quarantine=True)))
    assert again.quarantine_id is not None
    assert purge(graph, again.quarantine_id).files == len(plan.files)
    assert list_quarantines(graph).quarantines == ()


def test_an_altered_part_stops_a_removal_before_its_first_effect(graph: Graph) -> None:
    parted = in_parts(graph, plan_orphans(graph))
    assert parted.parts is not None
    assert len(parted.parts.parts) > 1
    last = f"{FOLDER}/{parted.parts.parts[-1].name}"
    data = graph.storage.read(last)
    graph.storage.write(last, data + b"?")
    before = below(graph, "")
    with pytest.raises(StalePlan, match=f"{last} was altered"):
        apply_orphans(graph, parted)
    graph.storage.delete(last)
    with pytest.raises(StalePlan, match=f"{last}, a part of the plan, is gone"):
        apply_orphans(graph, parted)
    assert below(graph, "") == before - {last}
    outside = replace(parted.parts, folder="../elsewhere")
    with pytest.raises(StalePlan, match="no place of a part"):
        apply_orphans(graph, sealed.seal(replace(parted, parts=outside)))


def peak_of_apply(graph: Graph, plan: OrphansPlan, parts: int) -> int:
    """The most memory, in bytes, that applying so many parts of files that are gone takes. Writes parts."""
    base = entry_of(graph, PERSON).path
    gone = [
        OrphanFile(path=f"{base}/data/{n:032x}.lance", size=1, modified_at=0.0, kind=OrphanKind.DATA)
        for n in range(parts * _ROWS)
    ]
    parted = in_parts(graph, replace(plan, files=tuple(gone), groups=()), _ROWS)
    del gone
    tracemalloc.start()
    try:
        assert apply_orphans(graph, parted).already_gone == parts * _ROWS
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.night
def test_the_memory_of_a_removal_does_not_grow_with_its_parts(demo_graph: DemoGraph) -> None:
    graph = demo_graph(**SMALL)
    plan = plan_orphans(graph)
    peak_of_apply(graph, plan, 1)
    few, many = (peak_of_apply(graph, plan, parts) for parts in (1, 10))
    assert many < 1.5 * few
