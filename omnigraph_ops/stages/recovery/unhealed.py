"""What no recovery heals, the engine's and ours: tables of named branches, and tables without a type. Reads only."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import cache

from omnigraph_ops.errors import OpsError
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.lance_manifest import stored_versions
from omnigraph_ops.graph.layout import EXPIRY_BRANCH_PREFIX, chain_folder
from omnigraph_ops.models.health import BranchFinding


def branch_findings(graph: Graph, *, covered: Collection[tuple[str, str]]) -> tuple[BranchFinding, ...]:
    """Tables of named branches whose published version is gone, or that are ahead of it. Reads.

    Costs one listing for each chain of a dataset that a branch publishes otherwise than main does.

    Args:
        covered: branches and tables that a sidecar explains.
    """
    on_main = {entry.path: entry.version for entry in graph.state().entries if entry.branch is None}

    @cache
    def stored(path: str, chain: str | None) -> frozenset[int]:
        return stored_versions(graph.storage, chain_folder(path, chain))

    def findings() -> Iterator[BranchFinding]:
        for name in graph.branches():
            if name.startswith(EXPIRY_BRANCH_PREFIX):
                continue
            for entry in graph.state(name).entries:
                if entry.branch is None and on_main.get(entry.path) == entry.version:
                    continue
                there = stored(entry.path, entry.branch)
                is_gone = entry.version not in there
                is_ahead = entry.branch == name and (name, entry.table_key) not in covered
                if is_gone or (is_ahead and max(there) > entry.version):
                    yield BranchFinding(
                        branch=name,
                        table_key=entry.table_key,
                        manifest_version=entry.version,
                        lance_head_version=None if is_gone else max(there),
                    )

    return tuple(findings())


def branch_advice(findings: Sequence[BranchFinding]) -> Iterator[str]:
    """What to do about each branch. Pure."""
    for branch in sorted({f.branch for f in findings}):
        gone = sorted(f.table_key for f in findings if f.branch == branch and f.lance_head_version is None)
        ahead = sorted(f.table_key for f in findings if f.branch == branch and f.lance_head_version is not None)
        if gone:
            yield (
                f"branch {branch!r} publishes versions that are gone, of {', '.join(gone)}: nobody can read them; main "
                "is not affected; delete the branch with omnigraph when nobody needs its other tables"
            )
        if ahead:
            yield (
                f"branch {branch!r} has writes that were never published, of {', '.join(ahead)}: the engine refuses to "
                "write these tables there, and neither it nor `recover` settles that; main is not affected; merge the "
                "branch or delete it with omnigraph"
            )


def schema_mismatch(graph: Graph) -> tuple[str, ...]:
    """Tables that are either in the accepted schema or in the graph manifest, but not in both. Reads both anew."""
    if not graph.format.publishes:
        return ()
    try:
        declared = {table.table_key for table in graph.format.read_catalog(graph.storage).tables}
    except OpsError:
        return ()  # a schema apply is replacing it; whoever opens the graph is told why it cannot be read
    return tuple(sorted(declared ^ {entry.table_key for entry in graph.state().entries}))


def mismatch_advice(tables: Sequence[str]) -> Iterator[str]:
    """What to do about tables that only one side knows. Pure."""
    if tables:
        yield (
            f"the accepted schema and __manifest disagree about {', '.join(tables)}: the engine cannot use them, nor "
            "other tables perhaps; a schema apply ended half way; restore the graph from a backup"
        )
