"""What is said of a folder for temporary files that refuses them."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from omnigraph_ops.engine import EngineCli, EngineRelease
from omnigraph_ops.errors import StorageError
from omnigraph_ops.storage.scratch import in_scratch, native_scratch, scratch_folder

FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_folder_that_cannot_be_made_is_a_fault_of_the_temporary_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> str:
        raise FULL

    monkeypatch.setattr("tempfile.mkdtemp", full)
    with pytest.raises(StorageError, match="No space left on device; no row is lost; set TMPDIR"):
        scratch_folder().__enter__()


def test_a_query_that_the_engine_cannot_be_given_is_one_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> int:
        raise FULL

    monkeypatch.setattr(Path, "write_text", full)
    release = EngineRelease(version=(0, 9, 0), stamp=6)
    engine = EngineCli(path="/bin/true", release=release, timeout_seconds=9, environment={})
    with pytest.raises(StorageError, match="cannot write to the temporary folder"):
        engine.mutate("g.omni", "main", "query", {})


def test_what_the_block_does_elsewhere_is_no_fault_of_the_temporary_folder() -> None:
    with pytest.raises(OSError, match="No space left") as caught, scratch_folder():
        raise FULL
    assert caught.value is FULL


def test_a_commit_of_lance_that_lost_stays_what_it_is() -> None:
    with pytest.raises(OSError, match="Commit conflict"), in_scratch():
        raise OSError("Commit conflict for version 3")
    with pytest.raises(StorageError, match="temporary folder"), in_scratch():
        raise OSError("Unable to copy data to file: No space left on device (os error 28)")


def test_native_code_needs_the_folder_that_tmpdir_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with native_scratch():
        pass
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(StorageError, match="this account may not write there"):
        native_scratch().__enter__()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "none"))
    with pytest.raises(StorageError, match="there is no such folder"):
        native_scratch().__enter__()


def test_a_panic_about_the_folder_is_told_as_its_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    other = StorageError("cannot build index i of g: No space left on device")
    said = 'err: Os { code: 28, kind: StorageFull, message: "No space" }'
    panic = f'cannot build index i of g: PathError {{ path: "{tmp_path}/.tmpX", {said} }}'
    with pytest.raises(StorageError) as raised, native_scratch():
        raise StorageError(panic)
    assert str(raised.value).startswith(f"cannot write to the temporary folder {tmp_path}: No space; no row is lost")
    with pytest.raises(StorageError) as raised, native_scratch():
        raise other
    assert raised.value is other
