"""What is stored below a folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from omnigraph_ops.errors import StorageError
from omnigraph_ops.storage.inventory import folders_in
from omnigraph_ops.storage.store import Storage


def test_a_file_where_a_folder_belongs_is_named(tmp_path: Path) -> None:
    (tmp_path / "rewrites").write_text("")
    with pytest.raises(StorageError, match=f"{tmp_path}/rewrites is a file where a folder belongs"):
        folders_in(Storage(str(tmp_path)), "rewrites")
