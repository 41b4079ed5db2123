"""Inventory files: three formats, two spellings of their columns, and one sentence for what is wrong."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from omnigraph_ops.errors import InvalidInput
from omnigraph_ops.stages.orphans.inventory_file import Inventory
from omnigraph_ops.storage.inventory import Stored

ROOT = "s3://bucket/graphs/kb.omni"
WHEN = "2026-11-01T00:00:00.000Z"
SECONDS = datetime(2026, 11, 1, tzinfo=UTC).timestamp()
FILE = Stored(path="nodes/x/data/a.lance", size=7, modified_at=SECONDS)


def rows(tmp_path: Path, name: str, data: str | bytes, root: str = ROOT) -> tuple[list[Stored], int]:
    file = tmp_path / name
    file.write_bytes(data if isinstance(data, bytes) else data.encode())
    inventory = Inventory.of_file(file, root)
    return list(inventory.rows()), inventory.foreign


@pytest.mark.parametrize("path", [FILE.path, f"{ROOT}/{FILE.path}"])
def test_the_simple_form(tmp_path: Path, path: str) -> None:
    text = f"path,size,last_modified\n{path},7,{WHEN}\n/elsewhere/x,1,{WHEN}\ns3://bucket/other/x,1,{WHEN}\n"
    assert rows(tmp_path, "list.csv", text) == ([FILE], 2)


def test_absolute_paths_of_a_local_graph(tmp_path: Path) -> None:
    text = f"path,size,last_modified\n/g/{FILE.path},7,{SECONDS}\nfile:///g/{FILE.path},7,{SECONDS}\n/gg/x,1,0\n"
    assert rows(tmp_path, "list.csv", text, "/g") == ([FILE], 1), "a file that is listed twice is one file"


def test_a_byte_order_mark_and_foreign_line_ends_do_no_harm(tmp_path: Path) -> None:
    text = f"\ufeffpath,size,last_modified\r\n{FILE.path},7,{WHEN}\r\n"
    assert rows(tmp_path, "list.csv", text) == ([FILE], 0)


def test_the_form_of_s3_inventory(tmp_path: Path) -> None:
    text = (
        'Bucket,Key,Size,LastModifiedDate,StorageClass\n"bucket","graphs/kb.omni/nodes/x/_refs/branches/a%252Fb.json",'
        f'"7","{WHEN}","STANDARD"\nother,graphs/kb.omni/y,1,{WHEN},X\n'
    )
    ((file,), foreign) = rows(tmp_path, "list.csv.gz", gzip.compress(text.encode()))
    assert (file.path, foreign) == ("nodes/x/_refs/branches/a%2Fb.json", 1)


def test_of_all_versions_only_the_current_ones_count(tmp_path: Path) -> None:
    def row(path: str, latest: bool, marker: bool) -> dict[str, object]:
        size = None if marker else 7
        return {"path": path, "size": size, "last_modified": WHEN, "IsLatest": latest, "is_delete_marker": marker}

    all_versions = [
        row(FILE.path, True, False),
        row(FILE.path, False, False),
        row("x", True, True),
        row("x", False, False),
    ]
    table = pa.Table.from_pylist(all_versions)
    pq.write_table(table, tmp_path / "made.parquet")
    assert rows(tmp_path, "list.parquet", (tmp_path / "made.parquet").read_bytes()) == ([FILE], 0)
    csv = [
        ",".join(table.column_names),
        *(",".join("" if v is None else str(v).lower() for v in r.values()) for r in all_versions),
    ]
    assert rows(tmp_path, "list.csv", "\n".join(csv).replace(WHEN.lower(), WHEN)) == ([FILE], 0)


def test_json_lines_and_parquet(tmp_path: Path) -> None:
    raw = {"Bucket": "bucket", "Key": f"graphs/kb.omni/{FILE.path}", "Size": 7, "LastModifiedDate": WHEN}
    assert rows(tmp_path, "list.jsonl", json.dumps(raw) + "\n\n") == ([FILE], 0)
    when = pa.array([datetime.fromisoformat(WHEN)], pa.timestamp("ms", "UTC"))
    table = pa.table({"bucket": ["bucket"], "key": [raw["Key"]], "size": [7], "last_modified_date": when})
    pq.write_table(table, tmp_path / "made.parquet")
    assert rows(tmp_path, "list.parquet", (tmp_path / "made.parquet").read_bytes()) == ([FILE], 0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("a.csv", "", 1),
        ("a.csv", "nodes/x,7,2026-11-01\n", 1),
        ("a.csv", f"path,size,last_modified\nx,seven,{WHEN}\n", 2),
        ("a.csv", f"path,size,last_modified\nx,-1,{WHEN}\n", 2),
        ("a.csv", "path,size,last_modified\nx,1,yesterday\n", 2),
        ("a.csv", "path,size,last_modified\nx,1,1e999\n", 2),
        ("a.csv", f"path,size,last_modified\nx,1\ny,1,{WHEN}\n", 2),
        ("a.csv", f"path,size,last_modified\n,1,{WHEN}\n", 2),
        ("a.jsonl", '{"path": "x\\u0000", "size": 1, "last_modified": 0}\n', 1),
        ("a.jsonl", '{"path": "\\ud800", "size": 1, "last_modified": 0}\n', 1),
        ("a.csv", f"path,size,last_modified\nx,1,{WHEN},more\n", 2),
        ("a.csv", f'path,size,last_modified\n"x,1,{WHEN}\n', 2),
        ("a.jsonl", '{"path": "x", "size": 1, "last_modified": 0}\n{"path"', 2),
        ("a.jsonl", "[1]\n", 1),
        ("a.jsonl", '{"path": "x", "last_modified": 0}\n', 1),
        ("a.jsonl", '{"path": 7, "size": 1, "last_modified": 0}\n', 1),
        ("a.csv", f"path,size,last_modified\nx\0,1,{WHEN}\n", 2),
        ("a.csv", f"path,size,last_modified\nx,1\0,{WHEN}\n", 2),
        ("a.csv", f'path,size,last_modified\n"x"y,1,{WHEN}\n', 2),
        ("a.csv", f"path,size,last_modified\n{'x' * 200_000},1,{WHEN}\n", 2),
        ("a.csv", f"path,size,last_modified\n{'x' * 2_000_000},1,{WHEN}\n", 2),
        ("a.csv", f"path;size;last_modified\nx;1;{WHEN}\n", 1),
        ("a.jsonl", "{" * 2_000_000, 1),
        ("a.jsonl", '{"path": "x", "size": ' + "9" * 5000 + ', "last_modified": 0}\n', 1),
    ],
)
def test_what_is_malformed_is_named_with_its_line(tmp_path: Path, name: str, text: str, line: int) -> None:
    with pytest.raises(InvalidInput, match=rf"line {line}\b"):
        rows(tmp_path, name, text)


@pytest.mark.parametrize("name", ["a.parquet", "a.csv.gz", "a.csv"])
def test_what_is_not_the_format_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidInput, match="inventory"):
        rows(tmp_path, name, b"\xff\xfe\x00junk")


LINES = f"path,size,last_modified\n{FILE.path},7,{WHEN}\n" + "".join(f"x{n},1,{WHEN}\n" for n in range(5000))


def scrambled(data: bytes) -> bytes:
    """The same with its middle overwritten."""
    half = len(data) // 2
    return data[:half] + b"\xff" * 64 + data[half + 64 :]


def parquet(table: pa.Table, path: Path) -> bytes:
    pq.write_table(table, path)
    return path.read_bytes()


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("a.csv.gz", scrambled),
        ("a.csv.gz", lambda data: data[:10] + b"\xff" * 16 + data[26:]),
        ("a.csv.gz", lambda data: data[: len(data) // 2]),
        ("a.csv.gz", lambda data: data[:-8] + bytes(8)),
        ("a.csv.gz", lambda data: data[:5]),
        ("a.csv.gz", lambda data: data + b"more"),
        ("a.parquet", scrambled),
        ("a.parquet", lambda data: data[: len(data) // 2]),
        ("a.parquet", lambda data: data[:-4] + b"XXXX"),
        ("a.parquet", lambda _data: b""),
    ],
)
def test_a_damaged_file_is_one_sentence(tmp_path: Path, name: str, damage: Callable[[bytes], bytes]) -> None:
    listed = pa.table({"path": [f"x{n}" for n in range(5000)], "size": [1] * 5000, "last_modified": [1.0] * 5000})
    good = gzip.compress(LINES.encode()) if name.endswith(".gz") else parquet(listed, tmp_path / "good.parquet")
    assert len(rows(tmp_path, name, good)[0]) >= 5000
    with pytest.raises(InvalidInput, match=r"a\.(csv\.gz|parquet).*; nothing was deleted$") as refused:
        rows(tmp_path, name, damage(good))
    assert "\n" not in str(refused.value)


@pytest.mark.slow
def test_a_small_archive_of_one_endless_line_takes_no_memory(tmp_path: Path) -> None:
    data = gzip.compress(bytes(256 * 1024 * 1024), compresslevel=1)
    assert len(data) < 2 * 1024 * 1024
    tracemalloc.start()
    try:
        for name in ("a.csv.gz", "a.jsonl.gz"):
            with pytest.raises(InvalidInput, match="line 1: it is longer than"):
                rows(tmp_path, name, data)
        assert tracemalloc.get_traced_memory()[1] < 32 * 1024 * 1024
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"name": ["x"], "size": [1], "last_modified": [1.0]}, "row 1: there is no path"),
        ({"path": ["x"], "size": ["many"], "last_modified": [1.0]}, "row 1: invalid literal"),
        ({"path": ["x"], "size": [1], "last_modified": [[1.0]]}, "row 1: "),
        ({"path": pa.array([b"\xff"]).view(pa.string()), "size": [1], "last_modified": [1.0]}, "utf-8"),
    ],
)
def test_a_parquet_file_of_something_else_is_one_sentence(tmp_path: Path, columns: dict[str, Any], words: str) -> None:
    data = parquet(pa.table(columns), tmp_path / "made.parquet")
    with pytest.raises(InvalidInput, match=words) as refused:
        rows(tmp_path, "a.parquet", data)
    assert str(refused.value).endswith("; nothing was deleted")


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="no inventory file"):
        Inventory.of_file(tmp_path / "none.csv", ROOT)
