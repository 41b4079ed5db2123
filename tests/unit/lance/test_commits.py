"""What a drafted version must be, and what is told of one that is something else."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable
from pathlib import Path

import lance
import pytest
from lance import optimize

from omnigraph_ops.lance.commits import Change, ConfigRemoval, RewriteChange, index_change
from omnigraph_ops.lance.gateway import CommitConflict, Dataset, LanceFailure
from tests.contract.test_lance_surface import results, rows, ten

Act = Callable[[Dataset], object]


def delete(dataset: Dataset) -> None:
    dataset.delete("n = 1")


def append(dataset: Dataset) -> None:
    lance.write_dataset(rows(900, 3), dataset.uri, mode="append")


def later(dataset: Dataset, act: Act) -> Dataset:
    """The version that somebody makes of it; what was opened stays as it is."""
    act(lance.dataset(dataset.uri))
    return lance.dataset(dataset.uri)


def compact_again(dataset: Dataset) -> None:
    optimize.Compaction.commit(dataset, results(dataset))


def test_a_rewrite_that_became_something_else_is_told(tmp_path: Path) -> None:
    dataset = ten(tmp_path)
    change = RewriteChange(results=tuple(result.json() for result in results(dataset)))
    wrong = "does not have the fragments that were made"
    assert change.difference(dataset, dataset) == wrong, "nothing happened"
    assert change.difference(dataset, later(dataset, compact_again)) == wrong, "the same fragments went, others came"


@pytest.mark.parametrize("act", [delete, append])
def test_a_change_of_the_configuration_or_of_an_index_leaves_every_fragment(tmp_path: Path, act: Act) -> None:
    dataset = ten(tmp_path)
    clone = later(dataset, lambda d: d.create_scalar_index("n", "BTREE", name="n_idx"))
    built = index_change(dataset, clone, int(dataset.version))
    assert built is not None
    config: Change = ConfigRemoval(keys=("none",))
    assert (config.difference(dataset, dataset), built.difference(dataset, clone)) == (None, None)
    moved = later(clone, act)
    assert config.difference(dataset, moved) == built.difference(dataset, moved) == "has other fragments"
    assert built.difference(dataset, dataset) == "does not have the index segments that were built"


def add_column(dataset: Dataset) -> None:
    dataset.add_columns({"twice": "n * 2"})


def drop_column(dataset: Dataset) -> None:
    dataset.drop_columns(["n"])


def build(dataset: Dataset) -> None:
    dataset.create_scalar_index("n", "BTREE", name="n_idx", replace=True)


def test_an_index_fits_only_the_rows_columns_and_segments_that_it_was_built_beside(tmp_path: Path) -> None:
    dataset = ten(tmp_path)
    shutil.copytree(dataset.uri, tmp_path / "clone")
    built = index_change(dataset, later(lance.dataset(str(tmp_path / "clone")), build), int(dataset.version))
    assert built is not None
    for act, why in (
        (append, None),
        (delete, None),
        (add_column, "5 fragments changed while their indexes were built"),
        (compact_again, "5 fragments changed while their indexes were built"),
        (drop_column, "a column was changed or dropped"),
        (build, "an index was changed by another writer"),
    ):
        shutil.copytree(dataset.uri, tmp_path / act.__name__)
        moved = later(lance.dataset(str(tmp_path / act.__name__)), act)
        with contextlib.nullcontext() if why is None else pytest.raises(CommitConflict, match=why):
            built.refuse_stale(moved)


def test_commits_of_a_clone_that_build_no_index_are_refused(tmp_path: Path) -> None:
    dataset = ten(tmp_path)
    with pytest.raises(LanceFailure, match="is no index; nothing was committed"):
        index_change(dataset, later(dataset, append), int(dataset.version))


def test_a_rewrite_takes_no_fragment_id_that_lance_cannot_store(tmp_path: Path) -> None:
    change = RewriteChange(results=tuple(result.json() for result in results(ten(tmp_path))))
    assert change.operation(2**32 - 2).groups
    with pytest.raises(LanceFailure, match="no fragment ids left; nothing was committed"):
        change.operation(2**32 - 1)
