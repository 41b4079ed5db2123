"""Plain Lance datasets for tests, and what their readers see."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa

from omnigraph_ops.config.settings import Settings
from omnigraph_ops.graph import Graph, open_graph
from tests.support.rows import digest_of

warnings.filterwarnings("ignore", message=".*list_indices.*", category=DeprecationWarning)
DIMENSION = 8
LOADS, PER_LOAD = 3, 60
FIRST_LOAD = 400


def rows(first: int, count: int) -> pa.Table:
    """Ids from `first` on, a few words, a category and a vector, the same for the same id."""
    ids = range(first, first + count)
    vectors = np.stack([np.random.default_rng(i).random(DIMENSION, dtype=np.float32) for i in ids])
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "text": [f"word{i % 7} common" for i in ids],
            "kind": [f"k{i % 3}" for i in ids],
            "vector": pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), DIMENSION),
        }
    )


def append_words(path: Path, words: list[str]) -> None:
    """A document per word."""
    mode = "append" if path.exists() else "create"
    lance.write_dataset(pa.table({"text": words}), str(path), mode=mode, enable_stable_row_ids=True)


def text_request(path: Path) -> dict[str, Any]:
    """What an older pylance is asked to build there."""
    place = {"kind": "build", "uri": str(path), "version": None, "storage_options": None}
    return {**place, "name": "text_idx", "column": "text"}


def append(path: str | Path, first: int, count: int = PER_LOAD) -> None:
    """A load of another writer."""
    lance.write_dataset(rows(first, count), str(path), mode="append")


def indexed(path: str | Path, *, stable: bool, deletions: bool = True, vector: str = "IVF_FLAT") -> Any:
    """Four fragments with scalar, bitmap, full-text and vector indexes, then three loads and perhaps deletions."""
    dataset = lance.write_dataset(
        rows(0, FIRST_LOAD), str(path), enable_stable_row_ids=stable, max_rows_per_file=FIRST_LOAD // 4
    )
    dataset.create_scalar_index("id", "BTREE")
    dataset.create_scalar_index("kind", "BITMAP")
    dataset.create_scalar_index("text", "INVERTED", with_position=True)
    more: dict[str, Any] = {"num_sub_vectors": 4, "num_bits": 4} if vector == "IVF_PQ" else {}
    dataset.create_index("vector", vector, num_partitions=2, **more)
    for load in range(LOADS):
        append(path, FIRST_LOAD + load * PER_LOAD)
    if deletions:
        lance.dataset(str(path)).delete("id % 10 = 3")
    return lance.dataset(str(path))


def database(root: Path) -> Path:
    """A LanceDB folder: stable row ids, none with deletions, and an empty table."""
    indexed(root / "stable.lance", stable=True, deletions=False)
    indexed(root / "unstable.lance", stable=False)
    lance.write_dataset(rows(0, 1).slice(0, 0), str(root / "empty.lance"))
    return root


def opened(target: Path, **settings: Any) -> Graph:
    """The target with settings that no environment changes."""
    return open_graph(str(target), Settings(**settings))


def content(path: str | Path, version: int | str | tuple[str, None] | None = None) -> str:
    """Digest of all rows by value and order."""
    dataset = lance.dataset(str(path))
    if version is not None:
        dataset = dataset.checkout_version(version)
    return digest_of(dataset.to_table(scan_in_order=True))


def answers(path: str | Path) -> tuple[list[int], ...]:
    """Ids that a scalar, a bitmap, a full-text, a phrase and a vector query find."""
    dataset = lance.dataset(str(path))
    from lance.query import PhraseQuery

    tables = (
        dataset.to_table(filter="id >= 390 AND id < 430"),
        dataset.to_table(filter="kind = 'k1'"),
        dataset.to_table(full_text_query="word3"),
        dataset.to_table(full_text_query=PhraseQuery("word4 common", "text")),
        dataset.to_table(nearest={"column": "vector", "q": np.full(DIMENSION, 0.5, np.float32), "k": 12, "nprobes": 2}),
    )
    found = tuple(sorted(t.column("id").to_pylist()) for t in tables)
    assert all(found), found
    return found


def index_coverage(path: str | Path) -> dict[str, list[set[int]]]:
    """Index name to the fragments of each segment, Lance's own among them."""
    described = lance.dataset(str(path)).describe_indices()
    return {i.name: [set(s.fragment_ids) for s in i.segments] for i in described}


def fragment_ids(path: str | Path) -> set[int]:
    return {f.fragment_id for f in lance.dataset(str(path)).get_fragments()}


def versions(path: str | Path) -> list[int]:
    return [v["version"] for v in lance.dataset(str(path)).versions()]
