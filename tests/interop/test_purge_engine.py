"""`--purge-deleted`: no file of the graph keeps what the real engine deleted, and its answers stay."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from lance.file import LanceFileReader

from omnigraph_ops.config.settings import Settings
from omnigraph_ops.graph import Graph, open_graph
from omnigraph_ops.models.cleanup import RetentionPolicy
from omnigraph_ops.stages.cleanup.apply import cleanup_all
from omnigraph_ops.stages.cleanup.plan import plan_cleanup
from omnigraph_ops.stages.optimize.run import optimize_all, plan_optimize
from tests.interop.engine import Engine, engine

pytestmark = pytest.mark.interop
SCHEMA = """\
node Doc {
    num: String @key
    share: I64
    third: I64
    body: String? @index
    made: DateTime? @index
    vec: Vector(4)? @index
}
node Place { code: String @key }
edge At: Doc -> Place { remark: String? }
"""
ROWS = 600
DELETES: tuple[tuple[str, Callable[[int], bool]], ...] = (
    ("share = 3", lambda n: n % 100 == 3),
    ("share < 40", lambda n: n % 100 < 40),
    ("third > 0", lambda n: n % 3 > 0),
    ("share >= 0", lambda n: True),
)


def document(number: int) -> dict[str, object]:
    """The vector of one in three is null, where `third` is 0; `share` counts from 0 to 99."""
    data = {
        "num": f"secret{number:04d}",
        "share": number % 100,
        "third": number % 3,
        "body": f"secret{number} lance",
        "made": f"2024-01-01T00:00:00.{number:03d}Z",
        "vec": None if number % 3 == 0 else [1.0, number / 1e6, 0, 0],
    }
    return {"type": "Doc", "data": data}


def link(number: int) -> dict[str, object]:
    return {"edge": "At", "from": f"secret{number:04d}", "to": "p", "data": {"remark": f"secret{number}"}}


def made(stamp: int, root: Path) -> Engine:
    oracle = engine(stamp)
    oracle.init(root, SCHEMA)
    oracle.load(root, [{"type": "Place", "data": {"code": "p"}}])
    for half in range(2):
        numbers = range(half, ROWS, 2)
        oracle.load(root, [*map(document, numbers), *map(link, numbers)])
    assert not optimize_all(open_graph(str(root))).failed
    return oracle


def kept(root: Path) -> Iterator[tuple[str, int]]:
    """What files hold of the numbers that were loaded: each value of a column, and of raw bytes."""
    for file in sorted(path for path in root.rglob("*") if path.is_file()):
        held = file.read_bytes().decode("latin-1")
        if file.suffix in {".lance", ".idx"}:
            table = LanceFileReader(str(file)).read_all().to_table()
            held += str(table.drop_columns([c for c in table.column_names if c == "_row_id"]).to_pydict())
        yield from ((str(file.relative_to(root)), n) for n in range(ROWS) if f"secret{n:04d}" in held)


def entries(root: Path) -> int:
    """How many vectors the index has."""
    return sum(int(LanceFileReader(str(file)).num_rows()) for file in root.rglob("auxiliary.idx"))


def purge(graph: Graph) -> None:
    assert not optimize_all(graph).failed
    assert not cleanup_all(graph, plan_cleanup(graph, RetentionPolicy(keep_versions=1))).failed


@pytest.mark.parametrize("stamp", [3, 6])
@pytest.mark.parametrize(("where", "gone"), DELETES, ids=[where for where, _ in DELETES])
def test_nothing_of_deleted_rows_is_left(tmp_path: Path, stamp: int, where: str, gone: Callable[[int], bool]) -> None:
    root = tmp_path / "g.omni"
    oracle = made(stamp, root)
    oracle.run("mutate", "--store", str(root), "-e", f"query d() {{ delete Doc where {where} }}", "--quiet")
    before = oracle.export(root)
    purge(open_graph(str(root)))
    deleted = set(filter(gone, range(ROWS)))
    assert deleted & {n for _, n in kept(root)}, "without the option they stay"
    graph = open_graph(str(root), Settings(purge_deleted=True))
    purge(graph)
    assert [found for found in kept(root) if found[1] in deleted] == []
    assert entries(root) == sum(1 for n in range(ROWS) if n % 3 and n not in deleted)
    assert not plan_optimize(graph).productive(), "there is nothing to do a second time"
    assert oracle.export(root) == before
    oracle.load(root, [document(n) for n in sorted(deleted)[:5]])
    assert len(oracle.export(root)) == len(before) + 5
    assert oracle.optimize(root)
