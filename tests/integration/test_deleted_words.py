"""On plain Lance a text search with a limit finds as many rows as before, although a text index keeps deleted rows."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from lance.query import DocumentGranularity, MatchQuery

from omnigraph_ops.config.settings import Settings
from omnigraph_ops.lance.gateway import Dataset
from omnigraph_ops.lance.text_indexer import home_of, process_of
from omnigraph_ops.models.optimize import OptimizeDecision, RewritePolicy, TablePlan
from omnigraph_ops.progress import Lines
from omnigraph_ops.stages.optimize.run import optimize_all, plan_optimize
from tests.support import plain
from tests.support.texts import installed_release

ROWS, NAME, WORD = 600, "text_idx", "common"
OWN = "13"
PARAMETERS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "ngrams": {"base_tokenizer": "ngram", "min_ngram_length": 2, "max_ngram_length": 4, "prefix_only": True},
    "phrases": {"with_position": True, "stem": False, "remove_stop_words": False, "max_token_length": None},
    "old_format": {"format_version": 1},
    "stop_words": {"language": "German", "custom_stop_words": ["der"], "lower_case": False, "ascii_folding": False},
}
COLUMNS: dict[str, tuple[str, dict[str, Any]]] = {
    "json": ("text", {}),
    "struct": ("text.say", {}),
    "list": ("text", {}),
    "structs": ("text.say", {}),
    "elements": ("text", {"document_granularity": DocumentGranularity.LIST_ELEMENT}),
}


def documents(first: int, count: int) -> pa.Table:
    """Documents of which every other one has nothing to say."""
    ids = range(first, first + count)
    return pa.table({"id": ids, "text": [f"{WORD} word{i}" if i % 2 else None for i in ids]})


def written(path: Path, *, release: str = OWN, stable: bool = True, **parameters: Any) -> Dataset:
    """Fragments of a hundred rows and an index, by that release."""
    dataset = lance.write_dataset(
        documents(0, ROWS), str(path), enable_stable_row_ids=stable, max_rows_per_file=ROWS // 6
    )
    if release == OWN:
        dataset.create_scalar_index("text", "INVERTED", name=NAME, **parameters)
    else:
        request = {**plain.text_request(path), "parameters": parameters}
        process_of(home_of(None) / installed_release(release)).ask("build", request, print)
    return lance.dataset(str(path))


def found(path: Path, rows: int = 20) -> int:
    scanner = lance.dataset(str(path)).scanner(full_text_query=WORD, limit=rows, columns=["id", "_score"])
    return int(scanner.to_table().num_rows)


def there(path: Path) -> int:
    return int(lance.dataset(str(path)).count_rows("text IS NOT NULL"))


def assert_all_found(path: Path) -> None:
    for rows in (1, 20, there(path)):
        assert found(path, rows) == min(rows, there(path)), f"with a limit of {rows}"


def parameters_of(path: Path) -> object:
    return lance.dataset(str(path)).stats.index_stats(NAME)["indices"][0]["params"]


def deleted(path: Path) -> int:
    return sum(int(fragment.num_deletions) for fragment in lance.dataset(str(path)).get_fragments())


def planned(path: Path, **settings: Any) -> TablePlan:
    (plan,) = plan_optimize(plain.opened(path, **settings)).tables
    return plan


@pytest.mark.slow
@pytest.mark.parametrize("release", [OWN, "8.0.1", "10.0.0"])
@pytest.mark.parametrize("stable", [True, False], ids=["stable", "unstable"])
@pytest.mark.parametrize("small_table_bytes", [0, Settings().small_table_bytes], ids=["two_units", "at_once"])
def test_a_rewrite_of_deleted_rows_costs_no_hit(
    tmp_path: Path, release: str, stable: bool, small_table_bytes: int
) -> None:
    path = tmp_path / "docs.lance"
    written(path, release=release, stable=stable)
    lance.dataset(str(path)).delete("id % 3 = 0")
    assert_all_found(path)
    assert not optimize_all(plain.opened(path, small_table_bytes=small_table_bytes)).failed
    assert deleted(path) == 0, "the deleted rows were rewritten away"
    assert_all_found(path)
    assert planned(path).decision is OptimizeDecision.NO_OP


@pytest.mark.slow
@pytest.mark.parametrize("parameters", PARAMETERS.values(), ids=PARAMETERS)
@pytest.mark.parametrize("release", [OWN, "8.0.1", "10.0.0"])
def test_what_another_compaction_left_so_is_put_right_with_the_parameters_of_the_owner(
    tmp_path: Path, release: str, parameters: dict[str, Any]
) -> None:
    path = tmp_path / "docs.lance"
    written(path, release=release, **parameters)
    lance.dataset(str(path)).delete("id % 3 = 0")
    lance.dataset(str(path)).optimize.compact_files()
    assert found(path) < 20
    (before,) = lance.dataset(str(path)).describe_indices()
    statistics = parameters_of(path)
    assert f"{NAME} has entries of rows that are gone, so it is built anew" in planned(path).reason
    assert not optimize_all(plain.opened(path)).failed
    assert_all_found(path)
    (after,) = lance.dataset(str(path)).describe_indices()
    assert after.segments[0].uuid != before.segments[0].uuid
    assert after.details == before.details
    assert parameters_of(path) == statistics
    assert after.segments[0].index_version == before.segments[0].index_version
    assert planned(path).decision is OptimizeDecision.NO_OP


@pytest.mark.parametrize("kind", COLUMNS)
def test_so_it_is_with_other_columns_of_words(tmp_path: Path, kind: str) -> None:
    path, column, parameters = tmp_path / "docs.lance", *COLUMNS[kind]
    words = [json.dumps({"say": f"{WORD} word{i}"}) if kind == "json" else f"{WORD} word{i}" for i in range(ROWS)]
    shaped = {
        "json": lambda: pa.array(words, pa.json_()),
        "struct": lambda: pa.array([{"say": word} for word in words]),
        "list": lambda: pa.array([[word, WORD] for word in words]),
        "elements": lambda: pa.array([[word, WORD] for word in words]),
        "structs": lambda: pa.array([[{"say": word}] for word in words]),
    }[kind]()
    table = pa.table({"id": range(ROWS), "text": shaped})
    dataset = lance.write_dataset(table, str(path), enable_stable_row_ids=True, max_rows_per_file=ROWS // 6)
    dataset.create_scalar_index(column, "INVERTED", name=NAME, **parameters)
    before = lance.dataset(str(path)).describe_indices()[0].details
    lance.dataset(str(path)).delete("id % 3 = 0")
    assert not optimize_all(plain.opened(path)).failed
    assert deleted(path) == 0
    query = MatchQuery(f"say,str,{WORD}" if kind == "json" else WORD, column)
    scanner = lance.dataset(str(path)).scanner(full_text_query=query, limit=20, columns=["id", "_score"])
    assert scanner.to_table().num_rows == 20
    assert lance.dataset(str(path)).describe_indices()[0].details == before


def test_the_words_that_the_owner_stops_stay_stopped(tmp_path: Path) -> None:
    path = tmp_path / "docs.lance"
    written(path, custom_stop_words=[WORD])
    lance.dataset(str(path)).delete("id % 3 = 0")
    assert not optimize_all(plain.opened(path)).failed
    assert deleted(path) == 0
    assert found(path) == 0
    assert parameters_of(path)["custom_stop_words"] == [WORD]  # type: ignore[index]


def test_so_it_is_with_a_clone_that_reads_the_index_of_its_original(tmp_path: Path) -> None:
    original, path = tmp_path / "original.lance", tmp_path / "clone" / "docs.lance"
    dataset = written(original)
    dataset.shallow_clone(str(path), dataset.version)
    lance.dataset(str(path)).delete("id % 3 = 0")
    assert not optimize_all(plain.opened(path)).failed
    assert deleted(path) == 0
    assert_all_found(path)
    assert planned(path).decision is OptimizeDecision.NO_OP


def test_an_index_that_cannot_be_looked_into_is_written_anew_before_rows_go(tmp_path: Path) -> None:
    path = tmp_path / "docs.lance"
    written(path)
    (entries,) = path.glob("_indices/*/part_0_docs.lance")
    entries.rename(tmp_path / "aside")
    assert planned(path).folds == ()
    lance.dataset(str(path)).delete("id % 3 = 0")
    plan = planned(path)
    assert [(fold.name, fold.purge) for fold in plan.folds] == [(NAME, True)]
    assert plan.compaction_tasks > 0


@pytest.mark.parametrize("small_table_bytes", [0, Settings().small_table_bytes], ids=["two_units", "at_once"])
def test_rows_that_are_deleted_while_the_index_is_written_stay_for_the_next_night(
    tmp_path: Path, small_table_bytes: int
) -> None:
    path = tmp_path / "docs.lance"
    written(path)
    lance.dataset(str(path)).delete("id < 100 AND id % 3 = 0")

    def beside(said: str) -> None:
        if said.endswith(f"folding index {NAME}"):
            lance.dataset(str(path)).delete("id >= 100 AND id % 3 = 0")

    graph = plain.opened(path, small_table_bytes=small_table_bytes)
    assert not optimize_all(graph, progress=Lines(beside)).failed
    assert deleted(path) > 100, "the later ones are there"
    assert_all_found(path)
    assert not optimize_all(plain.opened(path)).failed
    assert deleted(path) == 0
    assert_all_found(path)


@pytest.mark.parametrize("release", [OWN, "8.0.1", "10.0.0"])
@pytest.mark.parametrize("stable", [True, False], ids=["stable", "unstable"])
def test_no_row_is_found_by_a_word_that_it_had(tmp_path: Path, release: str, stable: bool) -> None:
    path = tmp_path / "docs.lance"
    written(path, release=release, stable=stable, with_position=True)
    statistics, had = parameters_of(path), there(path)
    lance.dataset(str(path)).update({"text": "'another'"}, where="id IN (1, 3, 101)")
    assert found(path, ROWS) == had - 3
    assert not optimize_all(plain.opened(path)).failed
    assert found(path, ROWS) == had - 3
    assert parameters_of(path) == statistics
    assert planned(path).decision is OptimizeDecision.NO_OP


def test_fragments_stay_as_they_are_where_the_index_cannot_be_written(tmp_path: Path) -> None:
    path = tmp_path / "docs.lance"
    written(path, release="8.0.1")
    lance.dataset(str(path)).delete("id % 3 = 0")
    nowhere = {"text_indexers": str(tmp_path / "nowhere")}
    version = lance.dataset(str(path)).version
    for more in ({}, {"small_table_bytes": 0}, {"policy": RewritePolicy.TIERED, "tier_fan_in": 2}):
        assert not optimize_all(plain.opened(path, **nowhere, **more)).failed
        plan = planned(path, **nowhere, **more)
        assert plan.decision is OptimizeDecision.NO_OP
        assert f"no fragment is rewritten, because searches by {NAME} would lose hits" in plan.reason
        assert "pylance 8.0.1, which is not installed" in plan.pending_indexes[0].reason
    assert lance.dataset(str(path)).version == version
    assert_all_found(path)


def test_other_indexes_are_folded_beside_one_that_keeps_the_fragments(tmp_path: Path) -> None:
    path = tmp_path / "docs.lance"
    written(path, release="8.0.1")
    lance.dataset(str(path)).create_scalar_index("id", "BTREE", name="id_idx")
    lance.write_dataset(documents(ROWS, 50), str(path), mode="append")
    lance.dataset(str(path)).delete("id % 3 = 0")
    for small_table_bytes in (0, Settings().small_table_bytes):
        graph = plain.opened(path, text_indexers=str(tmp_path / "nowhere"), small_table_bytes=small_table_bytes)
        assert not optimize_all(graph).failed
    coverage = plain.index_coverage(path)
    assert coverage["id_idx"] == [plain.fragment_ids(path)]
    assert len(plain.fragment_ids(path)) == 7, "no fragment was rewritten"
    assert_all_found(path)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_after_any_night_every_hit_is_found(tmp_path: Path, seed: int) -> None:
    path, chance = tmp_path / "docs.lance", random.Random(seed)
    written(path)
    for night in range(4):
        for change in range(chance.randint(1, 3)):
            if chance.random() < 0.6:
                lance.dataset(str(path)).delete(f"id % 17 = {chance.randrange(17)}")
            else:
                more = documents(10_000 * (night + 1) + 1000 * change, chance.choice([5, 80]))
                lance.write_dataset(more, str(path), mode="append")
        policy = chance.choice(list(RewritePolicy))
        settings = {"policy": policy, "tier_fan_in": 2, "small_table_bytes": chance.choice([0, 10**8])}
        assert not optimize_all(plain.opened(path, tier_unindexed_share=0.2, **settings)).failed
        assert_all_found(path)
