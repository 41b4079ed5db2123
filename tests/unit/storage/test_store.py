"""Errors of Lance, of stores and of file systems become one line without source paths, with what to do."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import ClassVar

import lance
import pyarrow as pa
import pytest

from omnigraph_ops.errors import BucketMissing, StorageError, first_line, reason_of
from omnigraph_ops.lance.gateway import LanceFailure, lance_errors
from omnigraph_ops.storage.half_written import half_written_of, is_half_written, stem_of, temporary_beside
from omnigraph_ops.storage.store import Storage, translated


def failures(folder: Path) -> list[LanceFailure]:
    """What Lance says of a version, a place, a manifest and a data file that are not there or not readable."""
    uri = str(folder / "t")
    dataset = lance.write_dataset(pa.table({"a": [1, 2, 3]}), uri)
    found: list[LanceFailure] = []

    def note(action: str) -> None:
        with pytest.raises(LanceFailure) as raised, lance_errors(f"open {action}"):
            {
                "version": lambda: dataset.checkout_version(99),
                "place": lambda: lance.dataset(str(folder / "none")),
                "rows": lambda: lance.dataset(uri).to_table(),
                "manifest": lambda: lance.dataset(uri),
            }[action]()
        found.append(raised.value)

    note("version")
    note("place")
    for pattern, action in (("data/*.lance", "rows"), ("_versions/*.manifest", "manifest")):
        (file,) = Path(uri).glob(pattern)
        file.write_bytes(b"garbage")
        note(action)
    return found


def test_no_message_of_lance_names_its_source(tmp_path: Path) -> None:
    found = failures(tmp_path)
    assert all(".rs:" in str(error.__cause__) for error in found), "Lance names its source in every one of them"
    for error in found:
        assert ".rs" not in str(error)
        assert "/home/" not in str(error)
        assert "/rustc/" not in str(error)
        assert "LanceError(" not in str(error)
        assert len(str(error).splitlines()) == 1
    assert str(found[0]).endswith("99.manifest")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            "LanceError(IO): disk on fire, /build/lance/rust/lance/src/io/commit.rs:123:45",
            "disk on fire",
        ),
        ("External error: LanceError(IO): a, /rustc/48a2/library/core/src/result.rs:1899:29, /x/y.rs:1:2", "a"),
        ("panicked at rust/lance-index/src/scalar/inverted/builder.rs:856:9", "panicked"),
        ("a table named notes.rs is missing", "a table named notes.rs is missing"),
        ("", "OSError"),
    ],
)
def test_the_line_without_its_source(text: str, line: str) -> None:
    assert first_line(OSError(text)) == line


def of_the_system(number: int) -> OSError:
    return OSError(number, os.strerror(number), "/g/x.tmp")


UNSAID = (
    "the store does not say why: check the key, the age of its session token, the region and the clock of this "
    "machine, then the rights of docs/reference/rights.md"
)
RIGHTS = "give this account the rights of docs/reference/rights.md, then run again"


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (of_the_system(errno.ENOSPC), "No space left on device; no row is lost; free space there, then run again"),
        (of_the_system(errno.EDQUOT), "Disk quota exceeded; no row is lost; free space there, then run again"),
        (
            of_the_system(errno.EROFS),
            "Read-only file system; no row is lost; mount that file system writable, or name another place",
        ),
        (of_the_system(errno.EACCES), f"Permission denied; no row is lost; {RIGHTS}"),
        (of_the_system(errno.EISDIR), "Is a directory"),
        (PermissionError("Access Denied"), f"Access Denied; no row is lost; {RIGHTS}"),
        (PermissionError("Forbidden"), f"Forbidden; no row is lost; {UNSAID}"),
        (OSError("Bad Request"), f"Bad Request; no row is lost; {UNSAID}"),
        (StorageError(f"cannot delete x: Access Denied; {RIGHTS}"), f"cannot delete x: Access Denied; {RIGHTS}"),
        (
            OSError("LanceError(IO): No space left on device (os error 28), /l/src/a.rs:1:2"),
            "No space left on device (os error 28); no row is lost; free space there, then run again",
        ),
        (
            OSError("Failed to get AWS credentials: CredentialsNotLoaded(CredentialsNotLoaded { .. })"),
            "no credentials for S3 were found; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or "
            "give this machine a role; in Airflow, set `connection` of the graph's entry to a connection that has them",
        ),
    ],
)
def test_what_can_be_done_is_said_once(error: Exception, reason: str) -> None:
    assert reason_of(error) == reason


def test_a_fault_of_the_store_says_what_to_do() -> None:
    words = r"^cannot write a\.json: No space left on device; no row is lost; free space there"
    with pytest.raises(StorageError, match=words), translated("write", "a.json"):
        raise of_the_system(errno.ENOSPC)


def test_a_bucket_does_not_come_back_by_itself() -> None:
    class Reply(Exception):
        response: ClassVar = {"Error": {"Code": "NoSuchBucket"}}

    with pytest.raises(BucketMissing, match="its bucket does not exist") as raised, translated("list", "s3://gone/g"):
        raise FileNotFoundError("The specified bucket does not exist") from Reply()
    assert not raised.value.retryable


@pytest.mark.parametrize("root", ["s3://bucket/graph", "/graphs/people"])
def test_an_error_names_the_whole_address(root: str) -> None:
    """A run works on a graph, a backup and a place to restore to: a path below one of them does not say which."""
    storage = Storage(root)
    with (
        pytest.raises(StorageError, match=f"^cannot write {root}/a/b: Permission denied"),
        storage.translated("write", "a/b"),
    ):
        raise PermissionError(13, "Permission denied")
    with pytest.raises(StorageError, match=f"^cannot list {root}: "), storage.translated("list", ""):
        raise PermissionError(13, "Permission denied")


def test_a_file_that_was_made_before_the_reply_was_lost_is_known_for_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on NFS: who took it for somebody else's would remove the files that a commit had just brought."""
    storage, link = Storage(str(tmp_path)), os.link

    def asked_twice(source: str, target: str) -> None:
        link(source, target)
        link(source, target)

    monkeypatch.setattr(os, "link", asked_twice)
    assert storage.create("first", b"ours")
    assert not storage.create("first", b"theirs")
    with storage.prepared("second", b"ours") as create:
        assert create()
    with storage.prepared("second", b"theirs") as create:
        assert not create()
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == {"first": b"ours", "second": b"ours"}


def test_a_temporary_file_that_stays_fails_nothing_that_was_created(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(path: str) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    storage = Storage(str(tmp_path))
    monkeypatch.setattr(os, "unlink", fail)
    with storage.prepared("first", b"ours") as create:
        assert create()
    assert storage.create("second", b"ours")
    left = [path for path in tmp_path.iterdir() if path.name not in {"first", "second"}]
    assert len(left) == 2
    for path in left:
        assert f"the temporary file {path} cannot be removed: Input/output error" in caplog.text


def test_a_file_that_did_not_fit_is_not_left_beside_the_one_that_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = Storage(str(tmp_path))
    storage.write("folder/file", b"before")

    def is_full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", is_full)
        for write in (storage.write, storage.create):
            with pytest.raises(StorageError, match="No space left"):
                write("folder/file", b"after")
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["file"]
    assert storage.read("folder/file") == b"before"


@pytest.mark.parametrize("suffix", [".part", ".tmp"])
@pytest.mark.parametrize("name", ["x.lance", "x" * 255, "\u00e4" * 127, "_" + "\u00e4" * 127])
def test_a_name_beside_a_file_is_told_from_others_and_never_too_long(name: str, suffix: str) -> None:
    path = f"/graph/data/{name}"
    beside = temporary_beside(path, suffix)
    assert beside != temporary_beside(path, suffix)
    assert os.path.dirname(beside) == "/graph/data"
    assert len(os.fsencode(os.path.basename(beside))) <= 255
    assert is_half_written(beside)
    assert half_written_of(beside) == stem_of(path)
    assert path.startswith(stem_of(path))


def test_any_other_name_is_of_a_whole_file() -> None:
    assert stem_of("nodes/x.lance") == "nodes/x.lance"
    assert not is_half_written("nodes/x.lance")
    assert half_written_of("nodes/x.lance") is None


@pytest.mark.parametrize("fault", [PermissionError(errno.EACCES, "denied"), OSError(errno.EIO, "disk"), TimeoutError()])
def test_what_cannot_be_looked_at_is_not_taken_for_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: OSError
) -> None:
    storage = Storage(str(tmp_path))
    storage.write("a", b"x")
    fail_to_look(monkeypatch, fault)
    with pytest.raises(StorageError, match=r"cannot look at .*/a"):
        storage.exists("a")


def test_an_interrupt_of_a_look_is_not_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = Storage(str(tmp_path))
    fail_to_look(monkeypatch, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        storage.exists("a")


def fail_to_look(monkeypatch: pytest.MonkeyPatch, fault: BaseException) -> None:
    def failing(*_path: object, **_options: object) -> None:
        raise fault

    monkeypatch.setattr(os, "lstat", failing)
    monkeypatch.setattr(os, "stat", failing)


def test_a_file_a_folder_and_a_link_are_there(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    storage.write("folder/file", b"x")
    (tmp_path / "broken").symlink_to(tmp_path / "nothing")
    assert [storage.exists(p) for p in ("", "folder", "folder/file", "broken")] == [True] * 4
    assert [storage.exists(p) for p in ("other", "folder/other", "folder/file/below")] == [False] * 3
