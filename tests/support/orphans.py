"""Leftovers of writes that were killed long ago, and what a run of orphans may say about them."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from omnigraph_ops.graph import Graph
from omnigraph_ops.graph.layout import new_ulid, now_us
from omnigraph_ops.graph.publish import merge_rows
from omnigraph_ops.graph.stamp import Lineage
from omnigraph_ops.graph.state import MANIFEST_SCHEMA_3, MANIFEST_SCHEMA_6, ManifestRow, manifest_table
from omnigraph_ops.models.orphans import OrphanKind, OrphansPlan, OrphansReport
from omnigraph_ops.stages.orphans.apply import apply_orphans
from omnigraph_ops.stages.orphans.candidates import files_of
from omnigraph_ops.stages.orphans.plan import plan_orphans
from tests.support.writers import entry_of

PERSON, KNOWS = "node:Person", "edge:Knows"
WEEK = 7 * 86_400


def age(root: str | Path, *, days: float = 8) -> None:
    """Make everything below `root` so old, folders too. Writes times only."""
    then = time.time() - days * 86_400
    for path in [*Path(root).rglob("*"), Path(root)]:
        os.utime(path, (then, then), follow_symlinks=False)


def put(graph: Graph, path: str, data: bytes = b"left over", *, days: float = 8) -> str:
    """Write one file of that age below the graph and return its path. Writes."""
    full = Path(graph.uri, path)
    full.parent.mkdir(parents=True, exist_ok=True)
    full.write_bytes(data)
    then = time.time() - days * 86_400
    os.utime(full, (then, then))
    return path


def plant(graph: Graph, *, days: float = 8, folder: str | None = None) -> dict[str, OrphanKind]:
    """One leftover of every kind that a killed write leaves in a table. Writes."""
    base = folder or entry_of(graph, PERSON).path
    index, stem = str(uuid.uuid4()), uuid.uuid4().hex
    leftovers = {
        f"{base}/data/{stem}.lance": OrphanKind.DATA,
        f"{base}/data/{stem}/{'0' * 32}.blob": OrphanKind.BLOB,
        f"{base}/_deletions/0-3-{uuid.uuid4().int % 2**63}.arrow": OrphanKind.DELETION,
        f"{base}/_indices/{index}/page_data.lance": OrphanKind.INDEX,
        f"{base}/_indices/{index}/partition_0/part.lance": OrphanKind.INDEX,
        f"{base}/_transactions/3-{uuid.uuid4()}.txn": OrphanKind.TRANSACTION,
        f"{base}/_versions/.tmpAb3dEf": OrphanKind.TEMPORARY,
        f"{base}/data/{uuid.uuid4().hex}.lance#1": OrphanKind.TEMPORARY,
    }
    for path in leftovers:
        put(graph, path, days=days)
    return leftovers


def planned(plan: OrphansPlan) -> dict[str, OrphanKind]:
    """What goes, by path."""
    return {f.path: f.kind for f in plan.files}


def run(graph: Graph, *, quarantine: bool = False) -> tuple[OrphansPlan, OrphansReport]:
    """Plan and apply. Destroys."""
    plan = plan_orphans(graph, quarantine=quarantine)
    return plan, apply_orphans(graph, plan)


def assert_nothing_left(graph: Graph) -> None:
    """A second run has nothing to do."""
    plan, report = run(graph)
    assert (plan.files, plan.folders, plan.unknown) == ((), (), ())
    assert (report.files_removed, report.folders_removed, report.failed) == (0, 0, ())


def every_version(graph: Graph) -> dict[tuple[str, str | None, int], int]:
    """Rows of every version of every chain of every dataset, each scanned. Reads."""
    found = {}
    for path in sorted({e.path for b in (None, *graph.branches()) for e in graph.state(b).entries} | {"__manifest"}):
        main = graph.lance.open(graph.storage.uri(path))
        for branch in (None, *(b.name for b in graph.lance.branches(main))):
            for version in graph.lance.open(main.uri, branch=branch).versions():
                number = version["version"]
                opened = graph.lance.open(main.uri, branch=branch, version=number)
                found[path, branch, number] = opened.to_table().num_rows
                for index in opened.describe_indices():
                    opened.stats.index_stats(index.name)
    return found


def name_mark(graph: Graph, files: Iterable[str]) -> set[str]:
    """Of the files of a dropped dataset those that stay: on stamp 3 its newest manifest, whose name sorts first."""
    return {min(path for path in files if path.endswith(".manifest"))} if graph.stamp == 3 else set()


def drop(graph: Graph, table_key: str, branch: str | None = None) -> str:
    """Publish a tombstone, as a schema apply does for a dropped type; the path of its dataset. Writes."""
    entry = entry_of(graph, table_key, branch)
    schema = MANIFEST_SCHEMA_3 if graph.stamp == 3 else MANIFEST_SCHEMA_6
    lineage = Lineage(commit_id=new_ulid(), created_at_us=now_us(), actor=None)
    row = ManifestRow(
        object_id=f"{table_key}$tombstone${entry.version:020d}",
        object_type="table_tombstone",
        table_key=table_key,
        identity=entry.identity,
        table_version=entry.version,
    )
    rows = [manifest_table([row], schema), graph.format.publish_rows(graph.state(branch), (), lineage)]
    merge_rows(graph.manifest(branch), pa.concat_tables([part for part in rows if part is not None]))
    state = graph.state(branch)
    assert state.get(table_key) is None
    graph.format.append_lineage(graph.context, branch, state.manifest_version, lineage)
    return entry.path


def below(graph: Graph, folder: str) -> set[str]:
    """Every file below a folder of a local graph. Reads."""
    return {str(p.relative_to(graph.uri)) for p in Path(graph.uri, folder).rglob("*") if p.is_file()}


OF_THE_MOMENT = ("planned_at_us", "expires_at_us", "cutoff", "digest", "files", "parts")


def assert_same_plan(graph: Graph, there: OrphansPlan, here: OrphansPlan) -> None:
    """A plan from Spark says what one made in process says, but for when it was made. Reads its parts."""
    assert there.parts is not None
    assert (there.files, there.parts.unknown) == ((), len(here.unknown))
    assert sorted(files_of(graph.storage, there), key=lambda f: f.path) == list(here.files)
    assert (there.total_files, there.total_bytes) == (len(here.files), here.total_bytes)
    assert {f.path for f in there.shown_files} <= {f.path for f in here.files}
    assert replace(there, **{name: getattr(here, name) for name in OF_THE_MOMENT}) == here
