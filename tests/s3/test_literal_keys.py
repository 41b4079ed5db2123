"""Nothing below an S3 root is a pattern: `[`, `*` and `?` in a root or in a foreign key are only characters."""

from __future__ import annotations

import uuid
from pathlib import Path
from types import SimpleNamespace

import pytest

from omnigraph_ops.config.settings import Settings
from omnigraph_ops.coordination.freezes import unfreeze
from omnigraph_ops.demo import DemoSpec, write_demo_graph
from omnigraph_ops.errors import GraphFrozen, StorageError
from omnigraph_ops.graph import open_graph
from omnigraph_ops.stages.backup.restore import restore_backup
from omnigraph_ops.stages.backup.take import backup_graph
from omnigraph_ops.stages.backup.verify import verify_backup
from omnigraph_ops.stages.freeze.take import freeze_graph
from omnigraph_ops.stages.optimize.run import optimize_all
from omnigraph_ops.stages.orphans import plan as planning
from omnigraph_ops.stages.orphans.apply import apply_orphans
from omnigraph_ops.stages.orphans.plan import plan_orphans
from omnigraph_ops.stages.orphans.quarantine import purge, restore
from omnigraph_ops.storage.inventory import below_folder, look_again, move_files, remove_files
from omnigraph_ops.storage.store import Storage
from tests.support.orphans import PERSON
from tests.support.rows import rows_everywhere
from tests.support.writers import entry_of

pytestmark = pytest.mark.s3
ODD = ("a*", "a[1]", "a?", "[!x]*", "**", "a#b", "a%20b")


def store(root: str) -> Storage:
    return Storage(root)


def keys(storage: Storage) -> set[str]:
    return {s.path for s in below_folder(storage, "")}


@pytest.mark.parametrize("name", ODD)
def test_every_call_of_the_store_is_literal(bucket: str, name: str) -> None:
    storage = store(bucket)
    near = {f"a1/{n}" for n in ("a1", "aX")} | {"a/x", "aX/x", "x/y"}
    for key in near:
        storage.write(key, b"near")
    for key in (f"{name}/one", f"{name}/two/{name}", f"{name}/three"):
        storage.write(key, b"mine")
    assert storage.list(name) == ("one", "three")
    assert (storage.exists(f"{name}/one"), storage.exists(f"{name}/on")) == (True, False)
    assert storage.stat(f"{name}/one").size == len(storage.read(f"{name}/one")) == 4
    assert b"".join(storage.chunks(f"{name}/one", 3)) == b"mine"
    assert not storage.create(f"{name}/one", b"other")
    storage.delete(f"{name}/one")
    assert move_files(storage, [(f"{name}/three", f"moved/{name}")]) == ()
    assert remove_files(storage, [f"moved/{name}"]) == ()
    storage.delete_tree(name)
    assert keys(storage) == near
    storage.delete_tree(name)


def test_a_key_that_s3fs_reads_as_another_is_never_touched(bucket: str) -> None:
    storage, odd = store(bucket), "x?versionId=1"
    storage.write("x", b"needed")
    storage.filesystem.call_s3("put_object", Bucket=bucket.removeprefix("s3://"), Key=odd, Body=b"foreign")
    for call in (storage.read, storage.stat, storage.delete, storage.exists, storage.delete_tree):
        with pytest.raises(StorageError, match="cannot be addressed"):
            call(odd)
    (fault,) = move_files(storage, [(odd, "moved")])
    (seen,) = look_again(storage, [odd])
    assert "cannot be addressed" in fault.reason
    assert "cannot be addressed" in str(seen)
    assert keys(storage) == {"x", odd}
    assert storage.read("x") == b"needed"


@pytest.fixture
def root(bucket: str, tmp_path: Path) -> str:
    """A graph with a branch under a root that is full of patterns, and neighbours that they would match."""
    write_demo_graph(str(tmp_path / "g"), DemoSpec(node_types=1, loads=3, rows=8, written_branches=1))
    backup = backup_graph(open_graph(str(tmp_path / "g")), str(tmp_path / "b")).backup
    restore_backup(backup, f"{bucket}/[ab]*/g.omni")
    for place in ("a/g.omni", "b1/g.omni"):
        for folder in ("rewrites/x/y", "freezes/x", "plans"):
            store(f"{bucket}/{place}").write(f"__maintenance/{folder}/z.json", b"a neighbour's")
    return f"{bucket}/[ab]*/g.omni"


@pytest.mark.night
def test_a_graph_under_a_root_with_patterns_is_maintained(
    bucket: str, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    neighbours = {k for k in keys(store(bucket)) if not k.startswith("[ab]*/")}
    graph = open_graph(root, Settings(small_table_bytes=0))
    rows = rows_everywhere(graph)
    assert any(t.committed for t in optimize_all(graph).tables)
    assert not [k for k in keys(graph.storage) if k.startswith("__maintenance/rewrites/") and k.endswith("plan.json")]
    freeze = freeze_graph(graph, ttl_seconds=600)
    with pytest.raises(GraphFrozen):
        optimize_all(open_graph(root))
    unfreeze(graph, freeze.freeze_id)
    assert not [k for k in keys(graph.storage) if freeze.freeze_id in k]
    foreign = [f"{entry_of(graph, PERSON).path}/data/{name}.lance" for name in ("*", "[a-z]*", "?", "a?b")]
    index = f"{entry_of(graph, PERSON).path}/_indices/{uuid.uuid4()}/*"
    for path in (*foreign, index):
        graph.storage.write(path, b"left over")
    monkeypatch.setattr(planning, "time", SimpleNamespace(time=lambda: 4e9))
    plan = plan_orphans(graph, quarantine=True)
    assert {f.path for f in plan.files} == {*foreign, index}
    moved = apply_orphans(graph, plan)
    assert moved.quarantine_id is not None
    restore(graph, moved.quarantine_id)
    again = apply_orphans(graph, plan_orphans(graph, quarantine=True))
    assert again.quarantine_id is not None
    assert purge(graph, again.quarantine_id).files == len(foreign) + 1
    assert rows_everywhere(open_graph(root)) == rows
    backup = backup_graph(graph, f"{bucket}/[ab]*/backups").backup
    assert verify_backup(backup).problems == ()
    assert restore_backup(backup, f"{bucket}/*/g.omni").problems == ()
    assert rows_everywhere(open_graph(f"{bucket}/*/g.omni")) == rows
    assert neighbours <= keys(store(bucket))
