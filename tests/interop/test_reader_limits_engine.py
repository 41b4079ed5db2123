"""What the engine could not read, were it merged: one long value among nulls, and too many long texts in a row."""

from __future__ import annotations

import hashlib
import random
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from omnigraph_ops.config.settings import Settings
from omnigraph_ops.graph import open_graph
from omnigraph_ops.models.health import CheckStatus
from omnigraph_ops.models.optimize import SkipReason
from omnigraph_ops.stages.optimize.run import optimize_all
from omnigraph_ops.stages.recovery.check import check
from tests.interop.engine import Engine, engine

pytestmark = pytest.mark.interop
SCHEMA = "node Note {\n    name: String @key\n    text: String?\n}\n"
LOADS, ROWS, VALUE = 6, 8_000, "h" * 60_000
"""Of 2.9 GB, were each null as long as the value."""


def rows(number: int) -> list[dict[str, object]]:
    """One load; of all rows the last one has a text."""
    found: list[dict[str, object]] = [{"name": f"n{number}_{n}"} for n in range(ROWS)]
    if number == LOADS - 1:
        found[-1]["text"] = VALUE
    return [{"type": "Note", "data": data} for data in found]


@pytest.mark.parametrize("stamp", [3, 6])
@pytest.mark.parametrize("small", [0, 10**9], ids=["rounds", "at once"])
def test_the_engine_reads_what_it_read(tmp_path: Path, stamp: int, small: int) -> None:
    oracle, root = engine(stamp), tmp_path / "graph"
    oracle.init(root, SCHEMA)
    for number in range(LOADS):
        oracle.load(root, rows(number))
    before, graph = oracle.export(root), open_graph(str(root), Settings(small_table_bytes=small))
    stats = {table.table_key: table for table in optimize_all(graph).tables}["node:Note"]
    assert (stats.skipped, stats.error, stats.fragments_added) == (SkipReason.UNREADABLE, None, 0)
    assert (oracle.export(root), check(graph).status) == (before, CheckStatus.CLEAN)


LONG = 1_000_000


def long_texts(number: int) -> Iterator[dict[str, object]]:
    """As much as one load of 0.9.0 takes in."""
    values = random.Random(number)
    for n in range(31):
        yield {"type": "Note", "data": {"name": f"n{number}_{n}", "text": values.randbytes(LONG // 20).hex() * 10}}


def exported(oracle: Engine, root: Path) -> list[str] | None:
    """A digest of each row that the engine exports, sorted, or None where it fails."""
    command = [oracle.binary, "export", "--store", str(root)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as running:
        assert running.stdout is not None
        found = sorted(hashlib.sha256(line).hexdigest() for line in running.stdout)
    return None if running.returncode else found


def test_the_engine_reads_long_texts_that_were_merged(tmp_path: Path) -> None:
    # 0.7.2 joins a table before it exports it: this one is too long for that as it is.
    oracle, root = engine(6), tmp_path / "graph"
    oracle.init(root, SCHEMA)
    for number in range(72):
        oracle.load(root, list(long_texts(number)))
    before, graph = exported(oracle, root), open_graph(str(root))
    assert before is not None
    stats = {table.table_key: table for table in optimize_all(graph).tables}["node:Note"]
    assert (stats.skipped, stats.error, stats.fragments_removed) == (None, None, 72)
    assert stats.fragments_added < 12
    assert exported(oracle, root) == before
    oracle.optimize(root)
    assert exported(oracle, root) is None, "the engine merged all of it"
    stats = {table.table_key: table for table in optimize_all(graph).tables}["node:Note"]
    assert (stats.skipped, stats.error, stats.fragments_removed) == (None, None, 1)
    assert (exported(oracle, root), check(graph).status) == (before, CheckStatus.CLEAN)


def many_texts(number: int) -> Iterator[dict[str, object]]:
    """Rows of 60,000 characters, of which 32 MiB take 30, and an export up to 262,144."""
    for n in range(number * 258, (number + 1) * 258):
        yield {"type": "Note", "data": {"name": f"n{n}", "text": (f"lorem ipsum dolor sit amet {n} " * 2001)[:60_000]}}


def test_the_engine_exports_texts_of_which_it_reads_more_at_a_time(tmp_path: Path) -> None:
    oracle, root = engine(6), tmp_path / "graph"
    oracle.init(root, SCHEMA)
    for number in range(144):
        oracle.load(root, list(many_texts(number)))
    before, graph = exported(oracle, root), open_graph(str(root))
    assert before is not None
    assert len(before) == 144 * 258
    stats = {table.table_key: table for table in optimize_all(graph).tables}["node:Note"]
    assert (stats.skipped, stats.error, stats.fragments_removed) == (None, None, 144)
    assert stats.fragments_added < 12
    assert exported(oracle, root) == before
