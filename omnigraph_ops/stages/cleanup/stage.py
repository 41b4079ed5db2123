"""Cleanup as a stage: request, question, views of plans and reports."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pydantic import ConfigDict, model_validator

from omnigraph_ops.config.terms import ExpiryTerms, RetentionTerms
from omnigraph_ops.models.cleanup import (
    SHORTEST_AGE_SECONDS,
    CleanupPlan,
    CleanupReport,
    CleanupStats,
    PlannedFile,
    ProtectedVersion,
    RetentionPolicy,
    SnapshotExpiry,
    TableCleanupPlan,
)
from omnigraph_ops.models.health import DriftFinding
from omnigraph_ops.models.runs import Unit
from omnigraph_ops.progress import Progress
from omnigraph_ops.quantities import FROM_AN_HOUR, count, duration, human_bytes
from omnigraph_ops.requests import TablesRequest
from omnigraph_ops.stages.stage import WRITERS_REFUSED, Effect, FormField, Measure, PartedStage, Submit, TaskIds
from omnigraph_ops.views.markdown import (
    by_cause,
    counted,
    files_section,
    human_seconds,
    left_tables,
    ranges,
    sealed_facts,
    size_of,
    some,
)
from omnigraph_ops.views.view import Question, Section, View

if TYPE_CHECKING:
    from omnigraph_ops.config.settings import Settings
    from omnigraph_ops.graph import Graph

_SECONDS = "time_retained_secs"
_ALSO = {_SECONDS: {"type": "integer", "minimum": SHORTEST_AGE_SECONDS}}
_AGE = {"pattern": FROM_AN_HOUR}
"""Of an age in forms, and in what Airflow takes as `conf`; the shell takes any with `--allow-young`."""
ORPHANED_FORKS = "orphaned forks"
"""The part of a plan that is about no table."""

_NO_POLICY = RetentionPolicy()
_OPENABLE = re.compile(r"^commit \S+ can be opened$")
_STOP = re.compile(r"^version \d+: ")
_SMALL_KEEP = 3
_MOST_REASONS = 10
_MOST_ROWS = 200


def _of_expiry(schema: dict[str, Any]) -> None:
    """Bound the age, and add what earlier releases called it. Changes the schema."""
    schema["properties"]["time_retained"].update(_AGE)
    schema["properties"].update(_ALSO)


class ExpiryRequest(ExpiryTerms):
    """Snapshot expiry: a policy of its own, per table, never mixed with --keep or --older-than."""

    model_config = ConfigDict(json_schema_extra=_of_expiry)

    @model_validator(mode="before")
    @classmethod
    def _in_seconds(cls, said: Any) -> Any:
        """Take `time_retained_secs`, too, as plans and the forms of earlier releases have it. Pure."""
        if not isinstance(said, dict) or _SECONDS not in said:
            return said
        others = {name: value for name, value in said.items() if name != _SECONDS}
        return {"time_retained": f"{said[_SECONDS]}s", **others}


class CleanupRequest(TablesRequest, RetentionTerms[ExpiryRequest]):
    """Remove old versions by number and age, or by snapshot expiry."""

    model_config = ConfigDict(
        json_schema_extra=lambda schema: schema["properties"]["older_than"]["anyOf"][0].update(_AGE)
    )

    @model_validator(mode="after")
    def _bounded(self) -> CleanupRequest:
        by_count_or_age = self.keep is not None or self.older_than is not None
        if self.expiry is not None and by_count_or_age:
            raise ValueError(
                "snapshot expiry is a policy of its own and is never mixed with --keep or --older-than: leave number "
                "and age empty; nothing was read or deleted"
            )
        if self.expiry is None and not by_count_or_age:
            raise ValueError(
                "cleanup requires at least one of keep (--keep) and older_than (--older-than); nothing was read or "
                "deleted"
            )
        return self


class Cleanup(PartedStage[CleanupRequest, CleanupPlan, CleanupReport]):
    """Removes old versions and orphaned forks."""

    name = "cleanup"
    effect = Effect.DESTROYS
    summary = "Remove old versions. Without --confirm it prints the plan and deletes nothing."
    examples = (
        "g.omni --keep 10 --older-than 7d --save-plan plan.json",
        "g.omni --plan plan.json --confirm",
        "s3://bucket/g.omni --keep 10 --confirm --yes",
    )
    unharmed = "nothing was deleted"
    request = CleanupRequest
    plan_type = CleanupPlan
    report_type = CleanupReport
    tasks = TaskIds(plan="plan_cleanup", approve="approve_cleanup", apply="cleanup_table")
    dag_id = "omnigraph_cleanup"
    measure = Measure(noun="versions", default=1000)
    fence_help = f"{WRITERS_REFUSED}, and remove old versions of the internal tables too."
    form = (
        FormField(name="keep", title="Keep newest versions", default=10, instead="expiry"),
        FormField(name="older_than", title="Remove only older than (1h or more)", default="7d", instead="expiry"),
        FormField(name="expiry", title="Snapshot expiry"),
    )
    button = "Clean up versions"
    age = duration(SHORTEST_AGE_SECONDS)

    def plan(self, graph: Graph, request: CleanupRequest, tell: Progress, submit: Submit | None = None) -> CleanupPlan:
        """Which versions go, and what holds the others. Reads."""
        from omnigraph_ops.stages.cleanup.plan import plan_cleanup

        return plan_cleanup(graph, request.policy, tables=request.tables, progress=tell)

    def apply(
        self, graph: Graph, plan: CleanupPlan, tell: Progress, submit: Submit | None = None, *, force: bool = False
    ) -> CleanupReport:
        """Remove exactly the planned versions and forks. Destroys."""
        from omnigraph_ops.stages.cleanup.apply import cleanup_all

        return cleanup_all(graph, plan, progress=tell)

    def parts_in(self, report: CleanupReport) -> list[str]:
        # Forks that are gone by their turn, or kept since, leave no row.
        return [*(table.table_key for table in report.tables), ORPHANED_FORKS]

    def parts(self, plan: CleanupPlan) -> list[str]:
        """The tables with versions to remove, and the orphaned forks of all tables as one. Pure."""
        tables = [table.table_key for table in plan.tables if table.versions]
        return [*tables, ORPHANED_FORKS] if plan.orphaned_forks else tables

    def apply_part(self, graph: Graph, plan: CleanupPlan, part: str) -> CleanupReport:
        """Remove the planned versions of one table, or the planned forks. Destroys."""
        from omnigraph_ops.stages.cleanup.apply import cleanup_table, remove_orphaned_forks

        if part == ORPHANED_FORKS:
            return CleanupReport.of(graph.uri, plan.policy, forks=remove_orphaned_forks(graph, plan))
        return CleanupReport.of(graph.uri, plan.policy, (cleanup_table(graph, plan, part),))

    def side_by_side(self, settings: Settings) -> int:
        from omnigraph_ops.stages.cleanup.apply import side_by_side

        return side_by_side(settings)

    def told(self, graph: Graph, unit: Unit) -> CleanupReport | None:
        """Which versions are gone, or whether the fork is. Reads."""
        from omnigraph_ops.stages.cleanup.apply import cleaned
        from omnigraph_ops.stages.cleanup.plan import fork_gone

        if not unit.branch:
            return CleanupReport.of(graph.uri, _NO_POLICY, (cleaned(graph, unit),))
        fork = fork_gone(graph, unit)
        return None if fork is None else CleanupReport.of(graph.uri, _NO_POLICY, forks=(fork,))

    def removed(self, report: CleanupReport) -> list[str]:
        cleaned = [table for table in report.tables if table.old_versions_removed]
        versions, forks = sum(t.old_versions_removed for t in cleaned), len(report.orphaned_forks_removed)
        of = some([t.table_key for t in cleaned])
        said = [f"{count(versions, 'version')} of {of}"] if cleaned else []
        return [*said, count(forks, "orphaned fork")] if forks else said

    def attention(self, plan: CleanupPlan, drift: Sequence[DriftFinding] | None) -> list[str]:
        refused = by_cause(("", t.table_key, f"not cleaned: {t.refused}") for t in plan.tables if t.refused)
        return [*refused, *_stopped(plan)]

    def left_out(self, plan: CleanupPlan) -> CleanupReport | None:
        rows = [CleanupStats(table_key=t.table_key, error=t.refused) for t in plan.tables if t.is_damaged]
        return CleanupReport.of(plan.uri, plan.policy, rows) if rows else None

    def nothing_to_do(self, plan: CleanupPlan) -> str | None:
        return "; ".join(("nothing to remove", *_stopped(plan))) if plan.is_empty else None

    def too_young(self, of: CleanupRequest | CleanupPlan) -> str | None:
        """By its ages, versions younger than an hour go. Pure."""
        policy = of.policy
        age = policy.older_than_secs if policy.expiry is None else policy.expiry.time_retained_secs
        if age is None or age >= SHORTEST_AGE_SECONDS:
            return None
        return (
            f"an age of {duration(age)} takes versions that a running query may still read; nothing was deleted; "
            f"give at least {duration(SHORTEST_AGE_SECONDS)}"
        )

    def terms(self, of: CleanupRequest | CleanupPlan) -> str:
        return str(of.policy)

    def warnings(self, of: CleanupRequest | CleanupPlan) -> tuple[str, ...]:
        expiry = of.policy.expiry
        kept = expiry.retain_min if expiry is not None else of.policy.keep_versions
        if kept is None or kept >= _SMALL_KEEP:
            return ()
        what = "--keep 0 behaves as 1; " if kept == 0 else ""
        return (f"{what}fewer than {_SMALL_KEEP} versions leave nobody an older version to go back to",)

    def size(self, plan: CleanupPlan) -> tuple[int, int]:
        return plan.total_versions, plan.total_bytes

    def files(self, plan: CleanupPlan) -> Sequence[PlannedFile]:
        return plan.files

    def view(self, value: CleanupPlan | CleanupReport) -> View:
        return plan_view(value) if isinstance(value, CleanupPlan) else report_view(value)

    def question(self, plan: CleanupPlan, *, force: bool = False) -> Question:
        """What a person is asked about a cleanup. Pure."""
        size = human_bytes(plan.total_bytes)
        return Question(
            subject=f"Remove {count(plan.total_versions, 'old version')} (about {size})?",
            intro=f"Cleanup of {plan.uri} removes {_total(plan)}.",
            on_approve="exactly these versions and files are removed. They cannot be brought back. A version that "
            "became protected since is kept; if other files than these would go, nothing of that table is removed.",
            on_reject="nothing is removed.",
        )


def plan_view(plan: CleanupPlan) -> View:
    """What goes, and what holds the rest. Pure."""
    tables = sorted((t for t in plan.tables if t.versions), key=lambda t: -t.estimated_bytes)
    header = ("Table", "Versions removed", "How many", "Files", "About", "Published", "Newest", "Stops at")
    held = ("Table", "Versions", "How many", "Why they stay")
    protected = tuple(
        (t.table_key, ranges(versions), counted(len(versions)), some(reasons, _MOST_REASONS, "; "))
        for t in plan.tables
        for reasons, versions in by_reasons(t.protected)
    )
    forks = tuple((f.table_key, f.branch, counted(len(f.files)), size_of(f.files)) for f in plan.orphaned_forks)
    kept = tuple((f.table_key, f.branch, f.error or "") for f in plan.kept_forks)
    untouched = [t for t in plan.tables if not t.versions and not t.refused]
    free = (t.table_key for t in untouched if not t.blocked_by)
    stopped = by_cause(("", t.table_key, f"stops at {t.blocked_by}") for t in untouched if t.blocked_by)
    return View.of(
        f"cleanup plan {plan.uri} ({plan.policy}) — {count(plan.total_versions, 'version')}, "
        f"{count(plan.total_files, 'file')}, {human_bytes(plan.total_bytes)} across {count(len(plan.tables), 'table')}",
        Section.table("Tables", header, (_cleanup_cells(t) for t in tables)),
        left_tables("Refused", ((t.table_key, t.refused) for t in plan.tables if t.refused)),
        Section.table("Orphaned forks removed", ("Table", "Fork", "Files", "About"), forks, most=_MOST_ROWS),
        Section.table("Orphaned forks kept", ("Table", "Fork", "Why it stays"), kept, most=_MOST_ROWS),
        Section.table("Protected versions", held, protected, most=_MOST_ROWS),
        Section(title="Nothing to remove", lines=(*free, *stopped)),
        files_section((f.path, f.kind, human_bytes(f.size)) for f in plan.files),
        facts=(
            ("Removes", _total(plan)),
            ("Policy", policy_text(plan.policy)),
            *sealed_facts(plan),
        ),
    )


def _stopped(plan: CleanupPlan) -> Iterator[str]:
    """What keeps versions that the policy would let go, a sentence for each branch. Pure."""
    found: dict[str, list[str]] = {}
    for table in plan.tables:
        if table.blocked_by:
            found.setdefault(_STOP.sub("", table.blocked_by), []).append(table.table_key)
    for why, tables in found.items():
        yield (
            f"cleanup stops at an old version of {count(len(tables), 'table')} ({some(tables)}): {why}; for newer "
            "versions to go, delete the branch if nobody needs it, or set between_pins (in the shell --between-pins)"
        )


def _total(plan: CleanupPlan) -> str:
    versions, files = count(plan.total_versions, "old version"), count(plan.total_files, "file")
    forks = f", {count(len(plan.orphaned_forks), 'orphaned fork')}" if plan.orphaned_forks else ""
    return f"{versions}{forks} and {files} (about {human_bytes(plan.total_bytes)})"


def _cleanup_cells(table: TableCleanupPlan) -> tuple[str, ...]:
    return (
        table.table_key,
        ranges(table.versions),
        counted(len(table.versions)),
        _kinds(table.files),
        human_bytes(table.estimated_bytes),
        str(table.pinned_version),
        str(table.lance_head_version),
        table.blocked_by or "",
    )


def _kinds(files: Sequence[PlannedFile]) -> str:
    """`3 data, 2 index` and so on. Pure."""
    found = Counter(f.kind for f in files)
    return ", ".join(f"{number:,} {kind}" for kind, number in sorted(found.items())) or "none"


def by_reasons(protected: Iterable[ProtectedVersion]) -> list[tuple[tuple[str, ...], list[int]]]:
    """Protected versions with the same reasons together, in the order of the first of them. Pure.

    Commits that can be opened are one reason: each version of the graph manifest has a commit of its own.
    """
    groups: dict[tuple[str, ...], list[ProtectedVersion]] = {}
    for held in protected:
        reasons = tuple(_OPENABLE.sub("their commits can be opened", reason) for reason in held.reasons)
        groups.setdefault(reasons, []).append(held)
    return [
        (those[0].reasons if len(those) == 1 else reasons, [held.version for held in those])
        for reasons, those in groups.items()
    ]


def report_view(report: CleanupReport) -> View:
    """What was removed, and what failed. Pure."""
    done = [t for t in report.tables if t.error is None]
    removed, failed = report.orphaned_forks_removed, report.orphaned_forks_failed
    # Of a table that failed, too: its versions may be gone.
    versions = sum(t.old_versions_removed for t in report.tables)
    size = sum(t.bytes_removed for t in report.tables)
    return View.of(
        f"cleanup {report.uri} ({report.policy}) — removed {count(versions, 'version')} ({size} bytes) "
        f"across {count(sum(t.error is None or t.old_versions_removed > 0 for t in report.tables), 'table')}",
        Section.table(
            "Tables",
            ("Table", "Versions removed", "How many", "Bytes", "Not removed"),
            (_removed_cells(t) for t in done),
        ),
        Section.table(
            f"{count(len(report.failed), 'table')} failed and will be retried on the next cleanup",
            ("Table", "Why"),
            ((t.table_key, t.error or "") for t in report.failed),
        ),
        Section.table("Orphaned forks removed", ("Table", "Fork"), ((f.table_key, f.branch) for f in removed)),
        Section.table(
            "Orphaned forks that could not be removed",
            ("Table", "Fork", "Why"),
            ((f.table_key, f.branch, f.error or "") for f in failed),
        ),
    )


def _removed_cells(table: CleanupStats) -> tuple[str, ...]:
    return (
        table.table_key,
        ranges(table.versions),
        counted(table.old_versions_removed),
        human_bytes(table.bytes_removed),
        table.not_removed,
    )


def policy_text(policy: RetentionPolicy) -> str:
    """A retention policy as a phrase. Pure."""
    parts = []
    if policy.keep_versions is not None:
        parts.append(f"keep the newest {policy.keep_versions}")
    if policy.older_than_secs is not None:
        parts.append(f"keep what is younger than {human_seconds(policy.older_than_secs)}")
    if policy.expiry is not None:
        parts.append(_expiry_text(policy.expiry))
    if policy.between_pins:
        parts.append("remove between the pins of branches too")
    return " and ".join(parts) or "none"


def _expiry_text(expiry: SnapshotExpiry) -> str:
    most = "" if expiry.retain_max is None else f", at most {expiry.retain_max:,}"
    return (
        f"snapshot expiry: retain at least {expiry.retain_min:,}{most}, otherwise what is younger than "
        f"{human_seconds(expiry.time_retained_secs)}; expire at most {count(expiry.expire_limit, 'version')} per table"
    )
