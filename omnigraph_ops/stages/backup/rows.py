"""How many rows every published version of a cut has: what a restored graph is compared with."""

from __future__ import annotations

from collections.abc import Iterable

from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.layout import MANIFEST_DIR
from omnigraph_ops.lance.gateway import live_rows
from omnigraph_ops.models.backup import BackupRecord, FileProblem, RowCount
from omnigraph_ops.models.freeze import FrozenCut, PinRole
from omnigraph_ops.parallel import in_parallel

_Place = tuple[str | None, str, str, str | None, int]
"""Graph branch, table key, path, Lance branch, version."""


def rows_of_cut(graph: Graph, cut: FrozenCut) -> tuple[RowCount, ...]:
    """The rows of every table on every branch of a cut. Reads."""
    return _counted(graph, _places(graph, cut))


def compare_rows(graph: Graph, record: BackupRecord) -> tuple[FileProblem, ...]:
    """What a restored graph publishes otherwise than the backup recorded. Reads."""
    wanted = {_key(row): row.rows for row in record.rows}
    places = _published(graph) if record.branches else [_key(row) for row in record.rows]
    found = {_key(row): row.rows for row in _counted(graph, places)}
    problems = []
    for key in sorted({*wanted, *found}, key=repr):
        if wanted.get(key) != found.get(key):
            branch, table_key, path, lance_branch, version = key
            where = f"{path} branch {lance_branch}" if lance_branch else path
            reason = (
                f"{table_key} on {branch or 'main'} has {_said(found.get(key))} rows at version {version} instead of "
                f"{_said(wanted.get(key))}"
            )
            problems.append(FileProblem(file=where, reason=reason))
    return tuple(problems)


def _said(rows: int | None) -> str:
    return "no" if rows is None else f"{rows:,}"


def _key(row: RowCount) -> _Place:
    return row.branch, row.table_key, row.path, row.lance_branch, row.version


def _places(graph: Graph, cut: FrozenCut) -> list[_Place]:
    if not cut.branches:
        return [(None, p.table_key, p.path, p.branch, p.version) for p in cut.pins if p.role is PinRole.TABLE]
    found: list[_Place] = []
    for at in cut.branches:
        manifest = graph.lance.open(
            graph.context.location.uri(MANIFEST_DIR), branch=at.branch, version=at.manifest_version
        )
        entries = graph.decode(manifest, at.branch).entries
        found += [(at.branch, e.table_key, e.path, e.branch, e.version) for e in entries]
    return found


def _published(graph: Graph) -> list[_Place]:
    """What the branches of an open graph publish now. Reads."""
    states = [graph.state(name) for name in (None, *graph.branches())]
    return [(s.branch, e.table_key, e.path, e.branch, e.version) for s in states for e in s.entries]


def _counted(graph: Graph, places: Iterable[_Place]) -> tuple[RowCount, ...]:
    listed = list(places)
    versions = sorted({place[2:] for place in listed}, key=repr)

    def rows(at: tuple[str, str | None, int]) -> int:
        path, branch, version = at
        return live_rows(graph.lance.open(graph.context.location.uri(path), branch=branch, version=version))

    counts = dict(zip(versions, in_parallel(rows, versions, workers=graph.settings.concurrency), strict=True))
    return tuple(
        RowCount(branch=p[0], table_key=p[1], path=p[2], lance_branch=p[3], version=p[4], rows=counts[p[2:]])
        for p in listed
    )
