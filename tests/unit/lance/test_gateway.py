"""What every stage shares of Lance."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import lance
import pyarrow as pa
import pytest

from omnigraph_ops.lance.gateway import DatasetMissing, LanceGateway, version_print


def dataset_with(times: int) -> Any:
    """A dataset one of whose branches goes so many times between the list of their files and a look into each."""
    goes = iter(range(times))

    def listed() -> dict[str, dict[str, Any]]:
        if next(goes, None) is not None:
            raise ValueError("Not found: g/__manifest/_refs/branches/__schema_apply_lock__.json, src/local.rs:273:40")
        return {
            "topic": {"parent_branch": None, "parent_version": 3, "branch_identifier": [(3, "u")], "manifest_size": 9}
        }

    return SimpleNamespace(uri="g/__manifest", branches=SimpleNamespace(list=listed))


def test_a_branch_that_goes_while_all_are_listed_is_no_fault() -> None:
    (branch,) = LanceGateway(None).branches(dataset_with(4))
    assert (branch.name, branch.parent_version, branch.is_bare) == ("topic", 3, False)


def test_a_reference_that_can_never_be_read_is_one() -> None:
    with pytest.raises(DatasetMissing, match="cannot list the branches of g/__manifest"):
        LanceGateway(None).branches(dataset_with(1000))


def test_a_version_is_itself_however_often_it_is_opened(tmp_path: Path) -> None:
    """Lance writes maps in another order each time."""
    metadata = {f"m{n}": "x" for n in range(8)}
    schema = pa.schema([pa.field("id", pa.int64(), metadata=metadata)])
    dataset = lance.write_dataset(pa.table({"id": [1]}, schema=schema), str(tmp_path / "t.lance"))
    dataset.update_config({f"k{n}": "x" for n in range(8)})
    prints = {version_print(LanceGateway(None).open(str(dataset.uri))) for _ in range(8)}
    assert prints == {version_print(dataset)}
    LanceGateway(None).refuse_another(dataset)
    dataset.update_config({"k0": "y"})
    assert version_print(dataset) not in prints
