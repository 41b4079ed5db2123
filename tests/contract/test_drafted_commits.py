"""What ADR 0013 relies on: a commit drafted on a copy of the newest manifest is what Lance commits in place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import pytest

from omnigraph_ops.graph.lance_manifest import highest_fragment_id, name_after, read_manifest, version_record
from omnigraph_ops.lance.commits import OPERATION_PROPERTY, Change, ConfigRemoval, Draft, RewriteChange, drafted
from omnigraph_ops.storage.store import Storage
from tests.contract.test_lance_surface import results, rows, ten, versions


def put(storage: Storage, draft: Draft) -> bool:
    """Make a draft the next version of the dataset `t`, if nobody else did."""
    storage.write(f"t/_transactions/{draft.transaction_name}", draft.transaction)
    return storage.create(f"t/_versions/{draft.manifest.name}", draft.manifest.content)


def draft_of(storage: Storage, dataset: lance.LanceDataset, change: Change) -> Any:
    newest = read_manifest(storage, "t", int(dataset.version))
    operation = change.operation(highest_fragment_id(newest))
    return drafted(newest, name_after(newest), operation, mark="me")


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage(str(tmp_path))


def test_a_rewrite_that_is_put_is_the_next_version_with_the_same_rows_and_row_ids(
    tmp_path: Path, storage: Storage
) -> None:
    dataset = ten(tmp_path)
    dataset.create_scalar_index("n", "BTREE", name="n_idx")
    before = dataset.to_table(with_row_id=True)
    change = RewriteChange(results=tuple(r.json() for r in results(dataset)))
    with draft_of(storage, dataset, change) as draft:
        assert change.difference(dataset, draft.dataset) is None
        assert put(storage, draft)
    after = lance.dataset(dataset.uri)
    assert (after.version, after.to_table(with_row_id=True)) == (dataset.version + 1, before)
    assert after.scanner(filter="n = 23", with_row_id=True).to_table()["id"].to_pylist() == ["r23"]
    record = version_record(storage, "t", after.version)
    assert (record.operation, record.transaction_id) == ("Rewrite", draft.transaction_id)
    assert dict(after.read_transaction(after.version).transaction_properties)[OPERATION_PROPERTY] == "me"


def test_what_lance_writes_after_a_put_builds_upon_it(tmp_path: Path, storage: Storage) -> None:
    dataset = ten(tmp_path)
    with draft_of(storage, dataset, RewriteChange(results=tuple(r.json() for r in results(dataset)))) as draft:
        put(storage, draft)
    lance.write_dataset(rows(900, 3), dataset.uri, mode="append")
    after = lance.dataset(dataset.uri)
    after.delete("n = 901")
    after.optimize.compact_files()
    assert sorted(after.to_table()["n"].to_pylist()) == [*range(50), 900, 902]
    assert len({f.fragment_id for f in after.get_fragments()}) == len(after.get_fragments())


def test_a_draft_that_was_overtaken_cannot_be_put_and_changes_nothing(tmp_path: Path, storage: Storage) -> None:
    dataset = ten(tmp_path)
    with draft_of(storage, dataset, RewriteChange(results=tuple(r.json() for r in results(dataset)))) as draft:
        lance.write_dataset(rows(900, 1), dataset.uri, mode="append")
        assert not put(storage, draft)
    assert lance.dataset(dataset.uri).count_rows() == 51


def test_drafting_writes_nothing_beside_the_dataset(tmp_path: Path, storage: Storage) -> None:
    dataset = ten(tmp_path)
    dataset.update_config({"lance.auto_cleanup.interval": "1", "lance.auto_cleanup.older_than": "0s"})
    there, known = sorted(tmp_path.rglob("*")), versions(dataset.uri)
    with draft_of(storage, dataset, ConfigRemoval(keys=("lance.auto_cleanup.interval",))) as draft:
        assert sorted(tmp_path.rglob("*")) == there
        assert put(storage, draft)
    assert "lance.auto_cleanup.interval" not in lance.dataset(dataset.uri).config()
    assert versions(dataset.uri) == [*known, known[-1] + 1]
