"""A plan about a table with very many versions, none of which is beside another of its kind."""

from __future__ import annotations

from omnigraph_ops.models.cleanup import CleanupPlan, OrphanedFork, ProtectedVersion, RetentionPolicy, TableCleanupPlan

MANY = 200_000
_FORKS = tuple(
    OrphanedFork(table_key="node:Person", table_path="nodes/p", branch=f"b{n}", error="a tag keeps it")
    for n in range(10_000)
)


def large_cleanup(*, many: int = MANY, kept_forks: tuple[OrphanedFork, ...] = _FORKS) -> CleanupPlan:
    """Every other version goes, every other one has a tag of its own, and one is read by as many branches."""
    protected = [ProtectedVersion(version=2 * n, reasons=(f"tag 'release-{n}'",)) for n in range(1, many)]
    readers = tuple(f"branch 'b{n}' reads it" for n in range(many))
    table = TableCleanupPlan(
        table_key="node:Person",
        table_path="nodes/p",
        pinned_version=2 * many,
        lance_head_version=2 * many,
        versions=tuple(range(1, 2 * many, 2)),
        protected=(*protected, ProtectedVersion(version=2 * many, reasons=readers)),
    )
    return CleanupPlan(
        uri="/graphs/a",
        stamp=6,
        policy=RetentionPolicy(keep_versions=1),
        planned_at_us=0,
        expires_at_us=1,
        tables=(table,),
        orphaned_forks=(),
        kept_forks=kept_forks,
        digest=f"sha256:{'0' * 64}",
    )
