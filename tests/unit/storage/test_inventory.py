"""What is stored below a folder."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from omnigraph_ops.errors import StorageError
from omnigraph_ops.storage.inventory import Stored, folders_in, look_again, take_unchanged
from omnigraph_ops.storage.store import Storage


def test_a_file_where_a_folder_belongs_is_named(tmp_path: Path) -> None:
    (tmp_path / "rewrites").write_text("")
    with pytest.raises(StorageError, match=f"{tmp_path}/rewrites is a file where a folder belongs"):
        folders_in(Storage(str(tmp_path)), "rewrites")


@pytest.fixture
def seen(tmp_path: Path) -> tuple[Storage, list[Stored]]:
    """Three files as they were seen; since then one was written anew and one is gone."""
    storage = Storage(str(tmp_path))
    for name in ("old", "new", "gone"):
        storage.write(f"t/{name}", b"1")
        os.utime(tmp_path / "t" / name, (1, 1))
    files = [file for file in look_again(storage, ["t/old", "t/new", "t/gone"]) if isinstance(file, Stored)]
    storage.write("t/new", b"2")
    storage.delete("t/gone")
    return storage, files


@pytest.mark.parametrize("place", [None, "kept/{}".format], ids=["deleted", "moved"])
def test_a_file_is_taken_only_as_it_was_seen(
    seen: tuple[Storage, list[Stored]], tmp_path: Path, place: Callable[[str], str] | None
) -> None:
    storage, files = seen
    (fault,) = take_unchanged(storage, files, place)
    assert (fault.path, fault.is_changed) == ("t/new", True)
    assert [path.name for path in (tmp_path / "t").iterdir()] == ["new"]
    assert storage.read("t/new") == b"2"
    assert [path.name for path in tmp_path.glob("kept/t/*")] == (["old"] if place else [])


def test_what_was_written_after_a_file_was_taken_stays(
    seen: tuple[Storage, list[Stored]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two others one after the other: what the second wrote is the newest."""
    storage, files = seen
    link = os.link

    def late(source: str, target: str, **words: bool) -> None:
        Path(target).write_bytes(b"3")
        link(source, target, **words)

    monkeypatch.setattr(os, "link", late)
    (fault,) = take_unchanged(storage, files[1:2])
    assert fault.is_changed
    assert [(path.name, path.read_bytes()) for path in (tmp_path / "t").iterdir() if path.name == "new"] == [
        ("new", b"3")
    ]


def test_nothing_is_taken_through_a_link(seen: tuple[Storage, list[Stored]], tmp_path: Path) -> None:
    storage, files = seen
    (tmp_path / "t").rename(tmp_path / "elsewhere")
    (tmp_path / "t").symlink_to(tmp_path / "elsewhere")
    assert {fault.reason for fault in take_unchanged(storage, files)} == {"leads through a link out of the graph"}
    assert (tmp_path / "elsewhere/old").exists()
