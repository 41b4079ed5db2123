"""Text search finds what it found before: readers are the Lance releases of the engines, in processes of their own."""

from __future__ import annotations

from pathlib import Path

import lance
import pytest

from omnigraph_ops.config.settings import Settings
from omnigraph_ops.graph import Graph, open_graph
from omnigraph_ops.graph.stamp import Analyser, text_indexes
from omnigraph_ops.lance.gateway import Dataset
from omnigraph_ops.lance.tables import build_index, fold_index
from omnigraph_ops.lance.text_indexer import home_of, process_of
from omnigraph_ops.models.optimize import OptimizeDecision, TablePlan
from omnigraph_ops.stages.health.read import health
from omnigraph_ops.stages.optimize.index_work import IndexWriter, Progress
from omnigraph_ops.stages.optimize.run import optimize_all, optimize_table, plan_optimize
from omnigraph_ops.storage.store import Storage
from tests.conftest import DemoGraph
from tests.support import plain
from tests.support.converged import assert_converged
from tests.support.rows import rows_of
from tests.support.texts import (
    COLUMN,
    DOC,
    INDEX,
    built_by,
    documents,
    found_by,
    lost,
    rows_like,
    text_release,
    vocabulary,
)
from tests.support.writers import entry_of, write

pytestmark = pytest.mark.slow

WORDS = vocabulary(5_000)
FEW = WORDS[:60]
_QUERIES = 100
OWN = {3: Analyser.LANCE_8, 6: Analyser.LANCE_10}


def half_indexed(graph: Graph, words: list[str], release: str) -> None:
    """Every second word is loaded after the engine's Lance built the index; then deletes, updates and merges."""
    numbered, everything = list(enumerate(words)), len(words)
    write(graph, DOC, documents(numbered[::2]))
    write(graph, DOC, built_by(release))
    write(graph, DOC, documents(numbered[1::2]))
    write(graph, DOC, lambda dataset: dataset.delete(_among(range(3, everything, 37))))
    write(graph, DOC, lambda dataset: dataset.update({COLUMN: f"concat({COLUMN}, ' moved')"}, _among(_moved(words))))
    write(graph, DOC, lambda dataset: _merge(dataset, [(n, f"merged {words[n]}") for n in range(6, everything, 43)]))


def _moved(words: list[str]) -> range:
    return range(5, len(words), 41)


def _among(numbers: range) -> str:
    return f"id in ({', '.join(repr(f'd{n}') for n in numbers)})"


def _merge(dataset: Dataset, words: list[tuple[int, str]]) -> None:
    dataset.merge_insert("id").when_matched_update_all().use_index(False).execute(rows_like(dataset, words))


def by_pylance_13(monkeypatch: pytest.MonkeyPatch) -> None:
    """What this tool did before: every index is written in this process."""

    def fold(_: IndexWriter, dataset: Dataset, __: str, name: str, segments: int, ___: Progress) -> None:
        fold_index(dataset, name, segments)

    def build(_: IndexWriter, dataset: Dataset, __: str, name: str, column: str, ___: Progress) -> None:
        build_index(dataset, column, "INVERTED", name)

    monkeypatch.setattr(IndexWriter, "fold_text", fold)
    monkeypatch.setattr(IndexWriter, "build_text", build)


def analysers(graph: Graph) -> frozenset[Analyser]:
    entry = entry_of(graph, DOC)
    return text_indexes(graph.storage, entry.path, entry.version)[INDEX].analysers


def planned(graph: Graph) -> TablePlan:
    (plan,) = plan_optimize(graph, tables=(DOC,)).tables
    return plan


@pytest.mark.night("all but one")
@pytest.mark.slow
def test_no_word_is_lost(demo_graph: DemoGraph, stamp: int) -> None:
    # A document is found by the term of its one word, so a query of many words loses it as a query of that word does.
    together = [" ".join(WORDS[n::_QUERIES]) for n in range(_QUERIES)]
    keeps_every_word(demo_graph, stamp, Settings(), WORDS, together)


@pytest.mark.night
def test_no_word_is_lost_where_the_rewrite_is_journalled(demo_graph: DemoGraph, stamp: int) -> None:
    keeps_every_word(demo_graph, stamp, Settings(small_table_bytes=0), FEW, FEW)


def keeps_every_word(
    demo_graph: DemoGraph, stamp: int, settings: Settings, words: list[str], queries: list[str]
) -> None:
    release = text_release(stamp)
    graph = demo_graph(stamp=stamp, loads=1, rows=20, settings=settings)
    half_indexed(graph, words, release)
    before, rows = found_by(release, graph, queries), rows_of(graph)
    assert len({each for ids in before.values() for each in ids}) > 0.7 * len(words)
    assert not optimize_all(graph).failed
    after = found_by(release, graph, queries)
    assert lost(before, after) == {}
    assert lost(after, before) == {}, "documents are found that do not have the word"
    assert analysers(graph) == {OWN[stamp]}
    assert rows_of(graph) == rows
    assert_converged(graph)
    assert not any(table.committed for table in optimize_all(graph).tables)


@pytest.mark.night
def test_words_are_lost_where_the_own_pylance_writes(
    demo_graph: DemoGraph, stamp: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If this fails, the test above proves nothing."""
    release = text_release(stamp)
    graph = demo_graph(stamp=stamp, loads=1, rows=20)
    half_indexed(graph, FEW, release)
    before = found_by(release, graph, FEW)
    with monkeypatch.context() as patched:
        by_pylance_13(patched)
        optimize_all(graph)
    assert lost(before, found_by(release, graph, FEW))


@pytest.mark.night
def test_what_an_earlier_release_folded_is_shown_and_built_anew(
    demo_graph: DemoGraph, stamp: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = text_release(stamp)
    graph = demo_graph(stamp=stamp, loads=1, rows=20)
    half_indexed(graph, FEW, release)
    before = found_by(release, graph, FEW)
    with monkeypatch.context() as patched:
        by_pylance_13(patched)
        optimize_all(graph)
    assert analysers(graph) == {Analyser.LANCE_11}
    (table,) = health(graph, tables=(DOC,)).tables
    assert "title_idx has words of Lance 11 or newer" in str(table.note)
    plan = planned(graph)
    assert (plan.decision, "so it is built anew" in plan.reason) == (OptimizeDecision.OPTIMIZE, True)
    stats = optimize_table(graph, DOC)
    assert INDEX in stats.indexes_folded
    assert lost(before, found_by(release, graph, FEW)) == {}
    assert analysers(graph) == {OWN[stamp]}
    assert health(graph, tables=(DOC,)).tables[0].note is None
    assert planned(graph).decision is OptimizeDecision.NO_OP


@pytest.mark.night("all but one")
def test_without_the_installation_text_is_left_to_the_engine(demo_graph: DemoGraph, stamp: int, tmp_path: Path) -> None:
    release = text_release(stamp)
    graph = demo_graph(stamp=stamp, loads=1, rows=20, settings=Settings(text_indexers=str(tmp_path / "none")))
    half_indexed(graph, FEW, release)
    before = found_by(release, graph, FEW)
    plan = planned(graph)
    assert {f.name for f in plan.folds} == {"embedding_idx", "id_idx"}
    (reason,) = {p.reason for p in plan.pending_indexes if p.column == COLUMN}
    assert f"pylance {release}, which is not installed here" in reason
    assert "`omnigraph-ops install-text-indexer`" in reason
    assert ("all columns in a record batch" in reason) == (stamp == 3)
    (stats,) = optimize_all(graph, tables=(DOC,)).tables
    assert (stats.error, COLUMN in {p.column for p in stats.pending_indexes}) == (None, True)
    assert lost(before, found_by(release, graph, FEW)) == {}
    assert not any(table.committed for table in optimize_all(graph, tables=(DOC,)).tables)
    again = open_graph(graph.uri)
    assert not optimize_all(again).failed
    assert lost(before, found_by(release, graph, FEW)) == {}
    assert_converged(again)


def test_a_plan_counts_on_no_merge_across_what_an_index_that_stays_covers(
    demo_graph: DemoGraph, tmp_path: Path
) -> None:
    graph = demo_graph(stamp=6, loads=4, rows=8, settings=Settings(text_indexers=str(tmp_path / "none")))
    plan = planned(graph)
    assert (plan.fragments, plan.fragments_after) == (4, 2)
    assert optimize_all(graph, tables=(DOC,)).tables[0].committed
    assert planned(graph).fragments == plan.fragments_after


def test_a_missing_text_index_waits_without_the_installation(demo_graph: DemoGraph, stamp: int, tmp_path: Path) -> None:
    graph = demo_graph(stamp=stamp, loads=1, rows=20, settings=Settings(text_indexers=str(tmp_path / "none")))
    write(graph, DOC, lambda dataset: dataset.drop_index(INDEX))
    plan = planned(graph)
    assert (plan.builds, [p.column for p in plan.pending_indexes]) == ((), [COLUMN])
    text_release(stamp)
    (build,) = planned(open_graph(graph.uri)).builds
    assert (build.name, build.release) == (INDEX, text_release(stamp))


def test_an_engine_that_certifies_its_indexes_keeps_them(demo_graph: DemoGraph) -> None:
    release = text_release(6)
    graph = demo_graph(stamp=6, loads=1, rows=20)
    half_indexed(graph, FEW, release)
    entry = entry_of(graph, DOC)
    manifest = Path(graph.uri, entry.path, "_versions")
    newest = min(manifest.glob("*.manifest"))
    raw = newest.read_bytes()
    writer = lance.__version__.encode()
    assert raw.count(writer) >= 1
    newest.write_bytes(raw.replace(writer, b"11.0.0"))
    plan = planned(graph)
    assert {f.name for f in plan.folds} == {"embedding_idx", "id_idx"}
    reasons = {p.column: p.reason for p in plan.pending_indexes}
    assert "omnigraph rebuild-full-text-indexes" in reasons[COLUMN]
    assert "11.0.0" in reasons[COLUMN]


def test_a_damaged_installation_fails_the_table_and_names_the_cure(
    demo_graph: DemoGraph, stamp: int, tmp_path: Path
) -> None:
    release = text_release(stamp)
    broken = tmp_path / "indexers" / release
    (broken / "lance").mkdir(parents=True)
    (broken / "lance" / "__init__.py").write_text("raise ImportError('damaged')\n")
    record = broken / f"pylance-{release}.dist-info" / "RECORD"
    record.parent.mkdir()
    record.touch()
    graph = demo_graph(stamp=stamp, loads=1, rows=20, settings=Settings(text_indexers=str(broken.parent)))
    half_indexed(graph, FEW, release)
    rows = rows_of(graph)
    (stats,) = [t for t in optimize_all(graph).tables if t.table_key == DOC]
    assert "install-text-indexer --again" in str(stats.error)
    assert rows_of(graph) == rows
    assert str(home_of(None)) not in str(stats.error)


@pytest.mark.parametrize("release", ["8.0.1", "10.0.0"])
def test_plain_lance_is_folded_by_the_release_of_its_index(tmp_path: Path, release: str) -> None:
    stamp = {"8.0.1": 3, "10.0.0": 6}[release]
    path, storage = tmp_path / "items.lance", Storage(str(tmp_path))
    text_release(stamp)
    plain.append_words(path, FEW[::2])
    process_of(home_of(None) / release).ask("build", plain.text_request(path), print)
    plain.append_words(path, FEW[1::2])
    waits = plain.opened(path, text_indexers=str(tmp_path / "none"))
    (pending,) = plan_optimize(waits).tables[0].pending_indexes
    assert f"pylance {release}" in pending.reason
    assert not optimize_all(plain.opened(path)).failed
    head = lance.dataset(str(path))
    found = text_indexes(storage, "items.lance", head.version)["text_idx"]
    assert found.analysers == {OWN[stamp]}
    (index,) = head.describe_indices()
    assert {f.fragment_id for f in head.get_fragments()} <= set(index.segments[0].fragment_ids)
