"""Graphs that the real engines wrote, unpacked from the archives named by OMNIGRAPH_GRAPHS."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
RELEASES = ("0.7.2", "0.9.0")
NAMES = ("empty", "six-loads", "churned", "branched", "late-vectors", "blobs")
# Lance branches record absolute paths: graphs with branches only work where they were made.
RECORDED_AT = Path("/srv/omnigraph")


def archive(release: str, name: str) -> Path:
    """The archive of a graph; skips the test visibly where the archives are not there."""
    folder = Path(os.environ.get("OMNIGRAPH_GRAPHS") or ROOT.parent / "shared" / "graphs")
    path = folder / release / f"{name}.tar.gz"
    if not path.is_file():
        pytest.skip(f"no graph written by the real engine at {path}; OMNIGRAPH_GRAPHS names the folder")
    return path


@contextlib.contextmanager
def unpacked(release: str, name: str, folder: Path) -> Iterator[Path]:
    """A private copy of the graph for the block. Writes."""
    source = archive(release, name)
    if name == "branched":
        with _at_recorded_path(source, release) as root:
            yield root
    else:
        yield _extract(source, folder)


@contextlib.contextmanager
def _at_recorded_path(source: Path, release: str) -> Iterator[Path]:
    """The one place where a graph with branches is whole, for one test at a time."""
    root = RECORDED_AT / release / "branched.omni"
    try:
        root.parent.mkdir(parents=True, exist_ok=True)
        lock = open(root.with_suffix(".lock"), "w")  # noqa: SIM115 - held for the block
    except OSError as error:
        pytest.skip(f"graphs with branches must be unpacked below {RECORDED_AT}: {error.strerror}")
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        marker = root.with_suffix(".made-by-tests")
        if root.exists() and not marker.exists():
            pytest.skip(f"{root} is there already and is not a copy of these tests")
        shutil.rmtree(root, ignore_errors=True)
        try:
            marker.touch()
            _extract(source, RECORDED_AT)
            yield root
        finally:
            shutil.rmtree(root, ignore_errors=True)
            marker.unlink(missing_ok=True)


def _extract(source: Path, folder: Path) -> Path:
    with tarfile.open(source) as archived:
        archived.extractall(folder, filter="data")
        return folder / archived.getnames()[0]
