"""Which index work can be done in parts: what is made anew from all rows, and nothing that is folded."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

from omnigraph_ops.errors import LeaseHeld
from omnigraph_ops.graph.plain import PlainGateway
from omnigraph_ops.lance.gateway import LanceFailure, LanceGateway
from omnigraph_ops.models.optimize import IndexBuild, IndexFold, OptimizeDecision, TablePlan
from omnigraph_ops.progress import SILENT
from omnigraph_ops.stages.optimize.index_work import IndexWriter, fold, made_anew
from omnigraph_ops.stages.optimize.units import Effort
from tests.support.vectors import column_of

FOLD = IndexFold(name="k_idx", columns=("k",), segments=1, uncovered_fragments=1)
WRITER = IndexWriter(lance=LanceGateway(None), home=Path("none"))


@pytest.fixture
def table(tmp_path: Path) -> Any:
    vectors = np.random.default_rng(0).normal(size=(50, 8)).astype(np.float32)
    none = pa.array([None] * 50, pa.list_(pa.float32(), 8))
    rows = pa.table({"k": np.arange(50), "t": ["some words"] * 50, "v": column_of(vectors), "none": none})
    dataset = lance.write_dataset(rows, str(tmp_path / "t.lance"), enable_stable_row_ids=True)
    dataset.create_scalar_index("k", "BTREE", name="k_idx")
    dataset.create_scalar_index("t", "INVERTED", name="t_idx", stem=False)
    dataset.create_index("v", "IVF_FLAT", name="v_idx", metric="L2", num_partitions=1)
    return dataset


def build(column: str, index_type: str, release: str | None = None) -> IndexBuild:
    return IndexBuild(column=column, index_type=index_type, name=f"{column}_idx", release=release)


@pytest.mark.parametrize(
    "index",
    [
        FOLD,
        replace(FOLD, purge=True),
        replace(FOLD, rebuild=True, columns=("k", "t")),
        replace(FOLD, rebuild=True, name="gone_idx"),
        replace(FOLD, rebuild=True, name="t_idx", columns=("t",)),
        replace(FOLD, rebuild=True, name="t_idx", columns=("t",), purge=True),
        # Fifty rows want the one partition that they have.
        replace(FOLD, retrain=True, name="v_idx", columns=("v",)),
        build("t", "INVERTED"),
        build("none", "IVF_FLAT"),
    ],
)
def test_whole(table: Any, index: IndexFold | IndexBuild) -> None:
    assert made_anew(WRITER, table, index) is None


@pytest.mark.parametrize(
    ("index", "column", "kind"),
    [
        (build("k", "BTREE"), "k", "BTREE"),
        (build("t", "INVERTED", "10.0.0"), "t", "INVERTED"),
        (build("v", "IVF_FLAT"), "v", "IVF_FLAT"),
        (replace(FOLD, rebuild=True), "k", "BTREE"),
        (replace(FOLD, rebuild=True, purge=True), "k", "BTREE"),
        (replace(FOLD, rebuild=True, name="t_idx", columns=("t",), release="10.0.0"), "t", "INVERTED"),
    ],
)
def test_in_parts(table: Any, index: IndexFold | IndexBuild, column: str, kind: str) -> None:
    found = made_anew(WRITER, table, index)
    assert found is not None
    assert (found.name, found.column, found.index_type, found.release) == (index.name, column, kind, index.release)
    assert not found.parameters
    assert (found.centroids is None) == (kind != "IVF_FLAT")
    assert found.centroids is None or found.centroids.shape == (1, 8), "one partition, as the engine makes it"


def test_entries_that_must_go_keep_the_parameters_of_their_index(table: Any) -> None:
    purge = replace(FOLD, rebuild=True, purge=True, name="t_idx", columns=("t",), release="10.0.0")
    found = made_anew(WRITER, table, purge)
    assert found is not None
    assert found.parameters["stem"] is False


def test_where_indexes_are_somebody_elses_nothing_is_made_anew(table: Any) -> None:
    others = replace(WRITER, lance=PlainGateway(None))
    assert made_anew(others, table, replace(FOLD, rebuild=True)) is None


@pytest.mark.parametrize(
    ("work", "steps"),
    [({"folds": (FOLD,)}, 0), ({"folds": (replace(FOLD, rebuild=True),)}, 1), ({"builds": (build("k", "BTREE"),)}, 0)],
)
def test_nothing_is_committed_once_another_run_took_over(table: Any, work: dict[str, Any], steps: int) -> None:
    version, left = int(table.version), iter(range(steps))
    plan = TablePlan(
        table_key="k", decision=OptimizeDecision.OPTIMIZE, read_version=version, lance_head_version=version, **work
    )

    def guard() -> None:
        if next(left, None) is None:
            raise LeaseHeld("taken over")

    with pytest.raises(LeaseHeld, match="taken over"):
        fold(WRITER, table, plan, guard, Effort(), SILENT)
    assert lance.dataset(table.uri).version == version


def test_an_index_that_somebody_dropped_since_it_was_to_be_purged_is_a_failure_of_its_table(table: Any) -> None:
    gone = replace(FOLD, rebuild=True, purge=True, name="gone_idx")
    plan = TablePlan(
        table_key="k", decision=OptimizeDecision.OPTIMIZE, read_version=1, lance_head_version=1, folds=(gone,)
    )
    with pytest.raises(LanceFailure, match=r"index gone_idx of .* could not be folded"):
        fold(WRITER, table, plan, lambda: None, Effort(), SILENT)
