"""What came of a unit that was cut off between its first effect and its result, as the graph tells it. Reads only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from omnigraph_ops.errors import InvalidInput
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.history import CONTENT_PRESERVING, history
from omnigraph_ops.graph.lance_manifest import VersionRecord
from omnigraph_ops.graph.sidecars import sidecar_names
from omnigraph_ops.lance.cleanup import existing_versions
from omnigraph_ops.lance.commits import OPERATION_PROPERTY
from omnigraph_ops.lance.errors import DatasetMissing
from omnigraph_ops.lance.gateway import Dataset
from omnigraph_ops.lance.rows import clock_of, count_below
from omnigraph_ops.lance.tables import fragment_facts, index_facts
from omnigraph_ops.models import (
    CleanupStats,
    OrphanedFork,
    RecoveryOutcome,
    RepairAction,
    RepairReport,
    TableStats,
)
from omnigraph_ops.models.backup import BackupLeft
from omnigraph_ops.models.history import Work
from omnigraph_ops.models.outcome import TableOutcome
from omnigraph_ops.models.retention import TableRowStats
from omnigraph_ops.models.runs import FilesDone, Unit, UnitValue
from omnigraph_ops.outcomes.backup_places import backup_of
from omnigraph_ops.outcomes.backup_records import left_of
from omnigraph_ops.storage.inventory import look_again


def what_came_of(graph: Graph, unit: Unit) -> UnitValue | None:
    """What a unit did, as far as the graph shows; None: nothing. Reads.

    Raises:
        InvalidInput: this release does not know how.
        OpsError: the graph cannot be read.
    """
    if not can_tell(unit):
        raise InvalidInput(f"this release does not know the stage {unit.stage!r}")
    return _BY[unit.told_by or unit.stage](graph, unit)


def can_tell(unit: Unit) -> bool:
    """Whether this release knows how the effects of a unit are told. Pure."""
    return (unit.told_by or unit.stage) in _BY


def cleaned(graph: Graph, unit: Unit) -> CleanupStats:
    """Which of the versions are gone, and how much of their files. Reads."""
    there = {v.version for v in existing_versions(_open(graph, unit.table_path))}
    gone = tuple(v for v in unit.versions if v not in there)
    return CleanupStats(
        table_key=unit.table_key,
        bytes_removed=moved(graph, unit).bytes,
        old_versions_removed=len(gone),
        versions=gone,
    )


def moved(graph: Graph, unit: Unit) -> FilesDone:
    """How many of the files are not where they were. Reads."""
    found = look_again(graph.storage, [f.path for f in unit.files])
    gone = [file for file, now in zip(unit.files, found, strict=True) if now is None]
    return FilesDone(files=len(gone), bytes=sum(f.size for f in gone))


def optimized(graph: Graph, unit: Unit) -> TableStats:
    """Whether a commit of ours moved the table, and what it replaced. Reads."""
    stats = TableStats(table_key=unit.table_key)
    path, newest = _newest(graph, unit)
    if path is None or newest is None or unit.version is None or int(newest.version) <= unit.version:
        return stats
    commits = history(graph.storage, path, after=unit.version, upto=int(newest.version)).records
    mine = [_is_ours(graph, unit, commit) for commit in commits]
    if not any(mine):
        return stats
    return replace(
        _difference(graph, path, unit.version, newest, stats) if all(mine) else stats,
        committed=True,
        published_version=int(newest.version),
    )


def _newest(graph: Graph, unit: Unit) -> tuple[str | None, Dataset | None]:
    """The path of the table of a unit and its HEAD: `recover` publishes what we committed to it. Reads."""
    if unit.table_path:
        return unit.table_path, _open(graph, unit.table_path)
    entry = graph.published(unit.table_key)
    return (None, None) if entry is None else (entry.path, graph.open_head(entry))


def _is_ours(graph: Graph, unit: Unit, commit: VersionRecord) -> bool:
    """Whether this tool made a commit: by its mark where it leaves one, else by its kind. Pure."""
    if unit.table_path or not graph.format.publishes:
        return commit.operation in CONTENT_PRESERVING
    return OPERATION_PROPERTY in dict(commit.properties)


def _difference(graph: Graph, path: str, before: int, newest: Dataset, stats: TableStats) -> TableStats:
    """The figures of what was replaced, while the version before is still there. Reads."""
    try:
        old = graph.lance.open(graph.context.location.uri(path), version=before)
    except DatasetMissing:
        return stats
    had, has = ({f.fragment_id: f for f in fragment_facts(d)} for d in (old, newest))
    known = set(index_facts(old))
    indexes = [i for i in index_facts(newest) if i not in known]
    index_bytes = sum(i.size_bytes for i in indexes)
    return replace(
        stats,
        fragments_removed=len(had.keys() - has.keys()),
        fragments_added=len(has.keys() - had.keys()),
        bytes_rewritten=index_bytes + sum(has[n].data_bytes for n in has.keys() - had.keys()),
        index_bytes_rewritten=index_bytes,
        indexes_folded=tuple(i.name for i in indexes if any(i.name == k.name for k in known)),
        indexes_built=tuple(i.name for i in indexes if all(i.name != k.name for k in known)),
    )


def _fork(graph: Graph, unit: Unit) -> OrphanedFork | None:
    listed = {ref.name for ref in graph.lance.branches(_open(graph, unit.table_path))}
    if unit.branch in listed:
        return None
    return OrphanedFork(table_key=unit.table_key, table_path=unit.table_path, branch=unit.branch, files=unit.files)


def _repaired(graph: Graph, unit: Unit) -> RepairReport | None:
    """The report with what was published; a table that was not stays as it was previewed. Reads."""
    report = unit.report
    if report is None:
        return None
    state = graph.state()
    pins = {entry.table_key: entry.version for entry in state.entries}
    # One graph commit for all of them, so one tells of all.
    published = any(
        pins.get(row.table_key, 0) >= row.lance_head_version
        for row in report.tables
        if row.action in {RepairAction.HEALED, RepairAction.FORCED}
    )
    return replace(report, manifest_version=state.manifest_version) if published else None


def _recovered(graph: Graph, unit: Unit) -> RecoveryOutcome | None:
    entry = graph.published(unit.table_key) if unit.table_key else None
    now = entry.version if entry is not None else None
    if now is not None and unit.version is not None and now > unit.version:
        action = "rolled_forward"
    elif unit.sidecar and unit.sidecar not in sidecar_names(graph.storage):
        action = "rolled_back"
    else:
        return None
    return RecoveryOutcome(
        operation_id=unit.sidecar.removesuffix(".json"),
        table_key=unit.table_key,
        action=action,
        from_version=unit.version,
        to_version=now,
    )


def _expired(graph: Graph, unit: Unit) -> TableRowStats | None:
    """How many rows below the cut are not there any more, and their edges, which go in the same merge. Reads."""
    plan, branch = unit.rows, unit.branch or None
    entry = graph.state(branch).get(unit.table_key)
    if plan is None or entry is None:
        return None
    now = graph.open_pinned(entry)
    clock = clock_of(now, plan.policy.property, plan.policy.unit)
    left = count_below(now, clock, plan.cut)
    removed = max(plan.expired - left, 0)
    return TableRowStats(
        table_key=unit.table_key,
        rows_removed=removed,
        edges=plan.edges if removed else (),
        rows_left=left,
        manifest_version=entry.version,
    )


def _backed_up(graph: Graph, unit: Unit) -> BackupLeft | None:
    return left_of(*backup_of(unit.backup, graph.context.access))


def _by_version(graph: Graph, unit: Unit) -> TableOutcome:
    """Whether the table is published at a later version than before. Reads."""
    entry = graph.published(unit.table_key)
    changed = entry is not None and unit.version is not None and entry.version > unit.version
    return TableOutcome(table_key=unit.table_key, changed=changed)


def _by_files(graph: Graph, unit: Unit) -> TableOutcome:
    """How many of the files are gone. Reads."""
    done = moved(graph, unit)
    work = Work(files_removed=done.files, bytes_reclaimed=done.bytes)
    return TableOutcome(table_key=unit.table_key, changed=bool(done.files), work=work)


def _open(graph: Graph, table_path: str) -> Dataset:
    return graph.lance.open(graph.context.location.uri(table_path))


_BY: dict[str, Callable[[Graph, Unit], UnitValue | None]] = {
    "optimize": optimized,
    "cleanup": cleaned,
    "forks": _fork,
    "orphans": moved,
    "quarantine": moved,
    "repair": _repaired,
    "recover": _recovered,
    "expire-rows": _expired,
    "backup": _backed_up,
    "version": _by_version,
    "files": _by_files,
}
"""By the stage, or by what the unit itself says."""
