"""`--purge-deleted` on plain Lance: the files of the newest version hold no deleted row, under every policy."""

from __future__ import annotations

from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest
from lance.file import LanceFileReader

from omnigraph_ops.config.settings import Settings
from omnigraph_ops.graph import open_graph
from omnigraph_ops.models.cleanup import RetentionPolicy
from omnigraph_ops.models.optimize import OptimizeDecision, RewritePolicy
from omnigraph_ops.stages.cleanup.apply import cleanup_all
from omnigraph_ops.stages.cleanup.plan import plan_cleanup
from omnigraph_ops.stages.optimize.run import optimize_all, plan_optimize
from tests.support.shell import Cli
from tests.support.vectors import column_of

KEY, ROWS = "table:t", 400
GONE = (7, 250)
SETTINGS = {
    "converge": Settings(),
    "tiered": Settings(policy=RewritePolicy.TIERED),
    "auto": Settings(auto=True),
    "paced": Settings(max_concurrent_rewrites=1, max_rewrite_bytes_per_second=10_000),
    "in rounds": Settings(small_table_bytes=0),
}


def dataset(path: Path, *, stable: bool = True) -> lance.LanceDataset:
    """Two fragments of 200 rows with an index on each column, of which one row each is deleted."""
    vectors = column_of(np.random.default_rng(1).random((ROWS, 4), dtype=np.float32))
    names = pa.array([f"secret{n}" for n in range(ROWS)])
    table = pa.table({"n": range(ROWS), "name": names, "text": names, "v": vectors})
    made = lance.write_dataset(table, path, max_rows_per_file=200, enable_stable_row_ids=stable)
    made.create_scalar_index("n", "BTREE")
    made.create_scalar_index("name", "BTREE")
    made.create_scalar_index("text", "INVERTED")
    made.create_index("v", "IVF_FLAT", num_partitions=1)
    made.delete(f"n in {GONE}")
    return made


def files_with(path: Path, number: int) -> list[str]:
    """Where the row is still stored."""
    return [
        str(file.relative_to(path))
        for file in (*path.rglob("*.lance"), *path.rglob("*.txn"))
        if file.is_file() and f"secret{number}'" in held(file)
    ]


def held(file: Path) -> str:
    if file.suffix == ".txn":
        return str(file.read_bytes())
    return str(LanceFileReader(str(file)).read_all().to_table().to_pydict())


def entries(path: Path) -> dict[str, list[int]]:
    """Rows of each index file that has one for each of its entries."""
    files = ("page_data.lance", "part_0_docs.lance", "auxiliary.idx")
    return {name: [int(LanceFileReader(str(f)).num_rows()) for f in path.rglob(name)] for name in files}


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
@pytest.mark.parametrize("stable", [True, False])
def test_nothing_of_a_deleted_row_is_left(tmp_path: Path, settings: Settings, stable: bool) -> None:
    path = tmp_path / "t.lance"
    expected = dataset(path, stable=stable).to_table().sort_by("n")
    fewer = settings.model_copy(update={"target_rows_per_fragment": 200})
    assert not plan_optimize(open_graph(str(path), fewer)).productive(), "a share of one in 200 is left alone"
    graph = open_graph(str(path), fewer.model_copy(update={"purge_deleted": True}))
    (planned,) = plan_optimize(graph).tables
    assert (planned.decision, planned.rewrite_bytes) == (OptimizeDecision.OPTIMIZE, planned.data_bytes)
    assert not optimize_all(graph).failed
    assert not cleanup_all(graph, plan_cleanup(graph, RetentionPolicy(keep_versions=1))).failed
    assert [files_with(path, number) for number in GONE] == [[], []]
    assert len(files_with(path, 8)) == 2, "a row that stays is in its data file, and in an index"
    left = ROWS - len(GONE)
    assert entries(path) == {"page_data.lance": [left, left], "part_0_docs.lance": [left], "auxiliary.idx": [left]}
    assert lance.dataset(path).to_table().sort_by("n") == expected
    assert not plan_optimize(graph).productive(), "there is nothing to do a second time"


def test_the_option_says_what_it_does_and_why(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "t.lance"
    dataset(path)
    said = cli("plan --purge-deleted", str(path))
    assert said.code == 0
    for name in ("n_idx", "name_idx", "text_idx", "v_idx"):
        assert f"{name} has entries of rows that are gone" in said.out
