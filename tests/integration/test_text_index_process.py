"""The process of an older pylance: one per release, its errors as if raised here, its end, and what it is told how."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

from omnigraph_ops.errors import OpsError
from omnigraph_ops.graph.stamp import Analyser, text_indexes
from omnigraph_ops.lance import text_indexer
from omnigraph_ops.lance.gateway import DatasetMissing, LanceFailure
from omnigraph_ops.lance.text_indexer import RELEASES, home_of, install, is_installed, process_of
from omnigraph_ops.progress import Lines
from omnigraph_ops.storage.store import Storage
from tests.support.texts import text_release

SECRET = "of-a-credential"


def silent(_text: str) -> None:
    """No progress."""


def dataset(folder: Path, name: str = "t.lance") -> str:
    uri = str(folder / name)
    lance.write_dataset(pa.table({"id": ["a", "b"], "t": ["university", "organism"]}), uri, enable_stable_row_ids=True)
    return uri


def request(uri: str, **fields: Any) -> dict[str, Any]:
    whole = {"kind": "build", "uri": uri, "version": None, "storage_options": None, "name": "t_idx", "column": "t"}
    return {**whole, **fields}


@pytest.mark.slow
@pytest.mark.parametrize("stamp", [3, 6])
def test_a_machine_of_few_cores_writes_an_index_of_many_texts(
    tmp_path: Path, stamp: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What pylance 8.0.1 takes by itself on up to three cores: with it, this never ends.
    monkeypatch.setenv("LANCE_CPU_THREADS", "1")
    monkeypatch.setattr(text_indexer, "_LONGEST_SECONDS", 120.0)
    draw, words = np.random.default_rng(0), np.array([f"word{number:05}" for number in range(30_000)])
    texts = [" ".join(row) for row in words[draw.zipf(1.3, (400_000, 12)) % len(words)]]
    table = lance.write_dataset(pa.table({"t": texts}), str(tmp_path / "t.lance"), enable_stable_row_ids=True)
    child = text_indexer.TextIndexProcess(home_of(None) / text_release(stamp))
    try:
        child.started()
        child.ask("build", request(table.uri), silent)
    finally:
        child.stop()
    (index,) = lance.dataset(table.uri).describe_indices()
    assert index.name == "t_idx"


@pytest.mark.parametrize(
    ("given", "quota", "threads"),
    [
        ("1", "max 100000", 2),
        ("5", "max 100000", 5),
        ("many", "200000 100000", 2),
        ("", "150000 100000", 2),
        ("", "nonsense", None),
        ("", "100000000 100000", None),
    ],
)
def test_threads_are_those_of_lance_but_never_one(tmp_path: Path, given: str, quota: str, threads: int | None) -> None:
    (tmp_path / "cpu.max").write_text(quota)
    said = runpy.run_path(str(text_indexer._CHILD))["threads"]({"LANCE_CPU_THREADS": given}, tmp_path / "cpu.max")
    assert said == (threads or max(2, len(os.sched_getaffinity(0)) - 2))


@pytest.mark.parametrize("stamp", [3, 6])
def test_one_process_serves_many_threads(tmp_path: Path, stamp: int) -> None:
    child = process_of(home_of(None) / text_release(stamp))
    uris = [dataset(tmp_path, f"{n}.lance") for n in range(4)]
    with ThreadPoolExecutor(4) as pool:
        versions = list(pool.map(lambda uri: child.ask("build", request(uri), silent)["version"], uris))
    assert versions == [2] * 4
    assert process_of(home_of(None) / text_release(stamp)) is child
    found = {text_indexes(Storage(str(tmp_path)), f"{n}.lance", 2)["t_idx"].analysers for n in range(4)}
    assert found == {frozenset({{3: Analyser.LANCE_8, 6: Analyser.LANCE_10}[stamp]})}


def test_errors_have_the_types_of_this_process(tmp_path: Path) -> None:
    child = process_of(home_of(None) / text_release(6))
    with pytest.raises(DatasetMissing, match="cannot build it: "):
        child.ask("build it", request(str(tmp_path / "none.lance")), silent)
    with pytest.raises(LanceFailure, match="cannot build it: "):
        child.ask("build it", request(dataset(tmp_path), column="no such column"), silent)
    assert child.alive


def test_credentials_are_no_arguments_of_the_process(tmp_path: Path) -> None:
    child = process_of(home_of(None) / text_release(6))
    child.ask("build", request(dataset(tmp_path), storage_options={"aws_secret_access_key": SECRET}), silent)
    arguments = Path(f"/proc/{child._child.pid}/cmdline")
    if not arguments.exists():
        pytest.skip("no /proc here")
    assert SECRET.encode() not in arguments.read_bytes()
    assert SECRET.encode() not in arguments.with_name("environ").read_bytes()


@pytest.mark.slow
def test_a_process_that_dies_fails_its_request_and_the_next_one_starts_another(tmp_path: Path) -> None:
    folder = home_of(None) / text_release(6)
    child = process_of(folder)
    child.stop()
    with pytest.raises(LanceFailure, match=r"cannot fold: the text indexer 10\.0\.0 ended with exit code -9"):
        child.ask("fold", request(dataset(tmp_path)), silent)
    again = process_of(folder)
    assert (again is child, again.alive) == (False, True)


@pytest.mark.slow
def test_what_python_prints_when_it_starts_is_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('Welcome to this machine')\n", encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr(text_indexer, "_START_SECONDS", 120.0)
    child = text_indexer.TextIndexProcess(home_of(None) / text_release(6))
    try:
        child.started()
        assert child.ask("build", request(dataset(tmp_path)), silent)["version"] == 2
    finally:
        child.stop()


def test_the_process_ends_with_its_parent() -> None:
    folder = home_of(None) / text_release(6)
    code = (
        "import pathlib, sys; from omnigraph_ops.lance.text_indexer import process_of; "
        "print(process_of(pathlib.Path(sys.argv[1]))._child.pid, flush=True); import os; os._exit(9)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(folder)], capture_output=True, text=True, check=False)
    status = Path(f"/proc/{done.stdout.strip()}/cmdline")
    for _ in range(600):
        # It may end between a look whether it is there and a read.
        with suppress(FileNotFoundError, ProcessLookupError):
            if b"text_index_child" in status.read_bytes():
                time.sleep(0.1)
                continue
        return
    raise AssertionError("the process outlives its parent")


def test_installing_again_keeps_what_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for release in RELEASES:
        (tmp_path / release / "lance").mkdir(parents=True)
        (tmp_path / release / "lance" / "__init__.py").touch()
        (tmp_path / release / f"pylance-{release}.dist-info").mkdir()
        (tmp_path / release / f"pylance-{release}.dist-info" / "RECORD").touch()
    heard: list[str] = []
    assert install(tmp_path, progress=Lines(heard.append)) == ()
    assert [text.split(" in ")[0] for text in heard] == ["pylance 8.0.1 is installed", "pylance 10.0.0 is installed"]
    monkeypatch.setattr(
        text_indexer, "_installer", lambda _target, _pins: [sys.executable, "-c", "raise SystemExit('x')"]
    )
    with pytest.raises(OpsError, match=r"pylance 8\.0\.1 cannot be installed: x; nothing changed"):
        install(tmp_path, progress=Lines(heard.append), again=True)
    assert is_installed(tmp_path, "8.0.1")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["10.0.0", "8.0.1"]


def test_a_release_that_cannot_be_put_in_place_leaves_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    marks = [tmp_path / release / "mark" for release in RELEASES]
    for mark in marks:
        mark.parent.mkdir()
        mark.touch()
    monkeypatch.setattr(text_indexer, "_installer", lambda _target, _pins: [sys.executable, "-c", ""])
    monkeypatch.setattr(text_indexer, "_PROBE", "")
    # The installer made no folder to rename.
    with pytest.raises(OpsError, match=r"cannot be installed into .*: No such file or directory; nothing changed"):
        install(tmp_path, again=True)
    assert all(mark.exists() for mark in marks)


def test_a_release_is_started_once_per_process() -> None:
    keys = [folder for _, folder in text_indexer._processes]
    assert len(keys) == len(set(keys))
