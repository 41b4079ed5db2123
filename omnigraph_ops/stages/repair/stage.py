"""Repair as a stage: request, question, views."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

from omnigraph_ops.models.health import DriftFinding
from omnigraph_ops.models.repair import (
    Classification,
    ColumnEvidence,
    DriftEvidence,
    EvidenceTier,
    RepairAction,
    RepairPreview,
    RepairReport,
    RepairRow,
    ShownRow,
    ShownValue,
    TierCost,
    VersionEvidence,
)
from omnigraph_ops.models.runs import Unit
from omnigraph_ops.progress import Progress
from omnigraph_ops.quantities import count, human_bytes, moment
from omnigraph_ops.requests import Option, TablesRequest
from omnigraph_ops.stages.stage import Effect, FormField, PlannedStage, Submit, Switch, TaskIds
from omnigraph_ops.views.markdown import by_cause, counted, left_tables, sealed_facts, some
from omnigraph_ops.views.view import Question, Section, View

if TYPE_CHECKING:
    from omnigraph_ops.graph import Graph

_EQUAL = {True: "content equal", False: "content differs", None: "content not proven equal"}
_MOST_NAMES = 30
_MOST_OPERATIONS = 10
_MOST_EVIDENCE = 10
"""Versions and branches of one table."""
_MOST_EQUAL = 8
"""Columns of a row that tell which one it is, where fewer than these differ."""
_NAMED = 3
"""Tables in a sentence."""
_CONTENT = {True: "equal", False: "differs", None: "not proven equal"}


class RepairRequest(TablesRequest):
    """Preview drifted tables, or publish their newest versions."""

    evidence: Annotated[EvidenceTier, Option(metavar="TIER")] = EvidenceTier.COUNTS
    """How much to read: `counts` metadata only, `sample` the row ids and a few rows, `full` every value."""


class Repair(PlannedStage[RepairRequest, RepairPreview, RepairReport]):
    """Publishes the newest versions of drifted tables as they are."""

    name = "repair"
    effect = Effect.PUBLISHES
    summary = "Preview drifted tables, or publish their newest versions. Rewrites no data."
    examples = ("g.omni --evidence full", "g.omni --table node:Person --confirm", "s3://bucket/g.omni --confirm --yes")
    does = "publishes the heads of drifted tables"
    unharmed = "nothing was published"
    spark_help = "Compare the rows and values of `--evidence sample` and `full` on this Spark master."
    request = RepairRequest
    plan_type = RepairPreview
    report_type = RepairReport
    tasks = TaskIds(plan="preview_repair", approve="approve_repair", apply="apply_repair")
    dag_id = "omnigraph_repair"
    switch = Switch(
        title="Also publish drift that is not verified maintenance",
        help="With --confirm: publish suspicious and unverifiable drift too.",
    )

    routine = "verified maintenance is published"
    form = (FormField(name="evidence", title="Evidence of a repair", default="sample"),)
    button = "Repair drift"

    def plan(self, graph: Graph, request: RepairRequest, tell: Progress, submit: Submit | None = None) -> RepairPreview:
        """Which tables are drifted, with evidence. Reads.

        Rows and values of tables above the threshold are compared by the job `evidence`.
        """
        from omnigraph_ops.stages.repair.compare import OnSpark
        from omnigraph_ops.stages.repair.run import preview_repair

        tier, least, comparison = request.evidence, graph.settings.spark_from(self.name) or 0, None
        if submit is not None:
            comparison = OnSpark(submit=submit, check=graph.run.check, tier=tier, from_bytes=least)
        return preview_repair(graph, tables=request.tables, evidence=tier, comparison=comparison)

    def apply(
        self, graph: Graph, plan: RepairPreview, tell: Progress, submit: Submit | None = None, *, force: bool = False
    ) -> RepairReport:
        """Publish in one graph commit. Publishes."""
        from omnigraph_ops.stages.repair.run import apply_repair

        return apply_repair(graph, plan, force=force)

    def told(self, graph: Graph, unit: Unit) -> RepairReport | None:
        from omnigraph_ops.stages.repair.run import published_of

        return published_of(graph, unit)

    def preview(self, plan: RepairPreview) -> RepairReport:
        """The engine prints a preview as a report that did nothing. Pure."""
        return RepairReport(
            uri=plan.uri, confirm=False, force=False, manifest_version=None, tables=plan.rows, digest=plan.digest
        )

    def nothing_to_do(self, plan: RepairPreview) -> str | None:
        if len(plan.lost) < len(plan.drifted):
            return None
        if plan.lost:
            return f"no repair helps: the newest version of {_named(plan.lost)} cannot be read"
        return "no table has drifted: nothing to repair"

    def left_by_default(self, plan: RepairPreview) -> str | None:
        left = _switched(plan)
        return f"{_named(left)} would be left: not verified maintenance" if left else None

    def is_routine(self, plan: RepairPreview) -> bool:
        """Verified maintenance only, and nothing in the evidence speaks against it. Pure."""
        return all(_nothing_against(row) for row in plan.drifted)

    def is_carried_out(self, plan: RepairPreview, report: RepairReport) -> bool:
        """A repair publishes all or nothing; done again, it would not tell that it was the one. Pure."""
        return report.digest == plan.digest and report.manifest_version is not None

    def attention(self, plan: RepairPreview, drift: Sequence[DriftFinding] | None) -> tuple[str, ...]:
        return tuple(by_cause(("", *one) for one in _drifted(plan, drift)))

    def view(self, value: RepairPreview | RepairReport) -> View:
        return plan_view(value) if isinstance(value, RepairPreview) else report_view(value)

    def question(self, plan: RepairPreview, *, force: bool = False) -> Question:
        """What a person is asked about a repair. Pure."""
        lost = f"The newest version of {_named(plan.lost)} cannot be read. It stays as it is; {_RESTORE}."
        return Question(
            subject=f"Repair {_named([row for row in plan.drifted if row.publishable])}?",
            intro=f"Tables of {plan.uri} hold versions that the graph does not publish. Repair publishes them as they "
            "are; it rewrites nothing.",
            on_approve=_on_approve(plan, force=force),
            on_reject="only the repair is skipped. The tables stay as they are, and the rest of the run goes on "
            "without them.",
            notes=(
                *([lost] if plan.lost else []),
                "Verified maintenance is compaction only: no row changed. Suspicious operations change rows or "
                "indexes; unverifiable ones cannot be read.",
                *([_SWITCH] if _switched(plan) else []),
            ),
        )


_RESTORE = "restore the graph from a backup"
_SWITCH = (
    "The switch below also publishes the tables that are not verified maintenance. Use it only when you know who made "
    "those versions."
)


def _switched(plan: RepairPreview) -> list[RepairRow]:
    """The tables that only the switch publishes. Pure."""
    verified = Classification.VERIFIED_MAINTENANCE
    return [row for row in plan.drifted if row.publishable and row.classification is not verified]


def _on_approve(plan: RepairPreview, *, force: bool) -> str:
    """What an approval publishes, by the tables and by where the switch starts. Pure."""
    needs = _switched(plan)
    if len(needs) == len(plan.drifted) - len(plan.lost) and not force:
        return "nothing is published unless you turn the switch on: no table here is verified maintenance."
    said = "the tables marked publish are published at their newest version in one graph commit"
    if needs and force:
        said += ", and with the switch on, as it is from the start, the others too"
    return f"{said}. If any of them moves before that, nothing is published."


def _named(rows: Sequence[RepairRow]) -> str:
    more = f" and {count(len(rows) - _NAMED, 'more table')}" if len(rows) > _NAMED else ""
    return ", ".join(row.table_key for row in rows[:_NAMED]) + more


def _nothing_against(row: RepairRow) -> bool:
    if row.classification is not Classification.VERIFIED_MAINTENANCE or row.error is not None or not row.readable:
        return False
    return row.evidence is None or (row.evidence.content_equal is not False and row.evidence.problem is None)


def _drifted(plan: RepairPreview, drift: Sequence[DriftFinding] | None) -> Iterator[tuple[str, str]]:
    """What is drifted now, with what its preview called it; where nobody could look, what was. Pure."""
    previewed = {row.table_key: row for row in plan.drifted}
    if drift is None:
        for row in plan.drifted:
            yield row.table_key, f"drifted when it was previewed ({_moved(row)})"
        return
    for table in drift:
        if table.problem is not None:
            yield table.table_key, f"the newest version cannot be read ({table.problem}); {_RESTORE}"
            continue
        known = previewed.get(table.table_key)
        called = f", {known.classification}" if known and known.lance_head_version == table.lance_head_version else ""
        yield table.table_key, f"drifted ({_moved(table)}{called})"


def _moved(of: RepairRow | DriftFinding) -> str:
    return f"version {of.manifest_version} → version {of.lance_head_version or '?'}"


def verdict_text(evidence: DriftEvidence) -> str:
    """`content equal: every fragment is the same`. Pure."""
    reason = f": {evidence.content_reason}" if evidence.content_reason else ""
    return _EQUAL[evidence.content_equal] + reason


def rows_text(evidence: DriftEvidence) -> str | None:
    """Rows and fragments of both sides, None when neither is known. Pure."""
    if evidence.rows_before is None or evidence.rows_after is None:
        return None
    counts = (("added", evidence.rows_added), ("removed", evidence.rows_removed), ("changed", evidence.rows_changed))
    known = [f"{number:,} {name}" for name, number in counts if number is not None]
    detail = f" ({', '.join(known)})" if known else ""
    fragments = f"fragments {evidence.fragments_before} → {evidence.fragments_after}"
    return (
        f"rows {evidence.rows_before:,} → {evidence.rows_after:,}{detail}; "
        f"{fragments}, {evidence.fragments_identical} identical"
    )


def column_text(column: ColumnEvidence) -> str | None:
    """One column that differs or was compared, None when nothing is known about it. Pure."""
    name = f"column {column.column}"
    if column.type_before is None:
        return f"{name}: added ({column.type_after})"
    if column.type_after is None:
        return f"{name}: dropped ({column.type_before})"
    if column.type_before != column.type_after:
        return f"{name}: type {column.type_before} → {column.type_after}"
    if column.digest_before is None or column.digest_after is None:
        return None
    digests = f"{column.digest_before[:12]} → {column.digest_after[:12]}"
    if column.equal:
        return f"{name}: equal ({column.digest_before[:12]})"
    if column.rows_changed:
        return f"{name}: other values in {count(column.rows_changed, 'row')} ({digests})"
    return f"{name}: equal where both have the row ({digests})"


def version_text(version: VersionEvidence) -> str:
    """`9 Delete at 2026-01-02 03:04:05 UTC by lance 7.0.0, read 8, where "id = 'x'"`. Pure."""
    if version.operation is None:
        return f"{version.version}: {version.problem}"
    parts = [f"{version.version} {version.operation}"]
    parts += [f"at {moment(version.committed_at_us)}"] if version.committed_at_us is not None else []
    parts += [f"by {version.writer}"] if version.writer else []
    text = " ".join(parts)
    text += f", read {version.read_version}" if version.read_version is not None else ""
    text += f", where {version.predicate}" if version.predicate else ""
    return text + "".join(f", {p.name}: {p.value}" for p in version.properties)


def cost_text(cost: TierCost) -> str:
    """`sample about 3.0 KiB`, or what was measured. Pure."""
    if cost.measured_bytes is not None:
        return f"{cost.tier.value} read {human_bytes(cost.measured_bytes)} in {cost.seconds:.2f} s"
    least = "at least" if cost.at_least else "about"
    return f"{cost.tier.value} {least} {human_bytes(cost.estimated_bytes)}"


def left_alone(rows: Iterable[RepairRow]) -> list[str]:
    """What goes on if nothing is published, each sentence once. Pure."""
    return list(dict.fromkeys(s for row in rows if row.evidence for s in row.evidence.if_not_published))


def value_text(value: ShownValue) -> str:
    """A value of a shown row, `old → new` where both sides have it and differ. Pure."""
    if value.before is None or value.after is None:
        return (value.after if value.before is None else value.before) or ""
    return value.before if value.before == value.after else f"{value.before} → {value.after}"


def plan_view(plan: RepairPreview) -> View:
    """What is drifted, with the evidence. Pure."""
    # What needs a person most comes first: it must not be what a long list leaves out.
    verified = Classification.VERIFIED_MAINTENANCE
    drifted = sorted(plan.drifted, key=lambda row: (row.classification is verified, row.table_key))
    readable = [row for row in drifted if row.publishable]
    others = [row.table_key for row in plan.rows if row.classification is Classification.NO_DRIFT]
    named = (("Only looked at", plan.tables), ("No drift", others))
    header = ("Table", "Published → newest", "On Approve", "Classification", "Operations", "Rows", "Content")
    return View.of(
        f"repair {plan.uri} — preview mode, {count(len(plan.rows), 'table')}",
        Section.table("Drifted tables", header, map(_drift_cells, readable)),
        left_tables("Newest version cannot be read", ((r.table_key, _classification(r)) for r in plan.lost)),
        Section(title="If nothing is published", lines=tuple(left_alone(drifted))),
        *_evidence([r for r in drifted if r.publishable or (r.evidence and r.evidence.versions)]),
        facts=(
            ("Drifted", _totals(drifted)),
            *((name, some(keys, _MOST_NAMES)) for name, keys in named if keys),
            *sealed_facts(plan),
        ),
    )


def _totals(rows: Sequence[RepairRow]) -> str:
    """`2 tables with 3 versions past the published ones: ...`. Pure."""
    if not rows:
        return "no table"
    versions = sum(max(row.lance_head_version - row.manifest_version, 0) for row in rows)
    found = [row.evidence for row in rows if row.evidence is not None]
    kinds = (
        ("added", [e.rows_added for e in found]),
        ("removed", [e.rows_removed for e in found]),
        ("changed", [e.rows_changed for e in found]),
    )
    text = f"{count(len(rows), 'table')} with {count(versions, 'version')} past the published ones: "
    text += ", ".join(f"{count(sum(n for n in known if n is not None), 'row')} {name}" for name, known in kinds)
    told = sum(None not in (e.rows_added, e.rows_removed, e.rows_changed) for e in found)
    return text + (f"; not counted in {count(len(rows) - told, 'table')}" if told < len(rows) else "")


def _drift_cells(row: RepairRow) -> tuple[str, ...]:
    verified = row.classification is Classification.VERIFIED_MAINTENANCE
    rows = (counted(row.rows_before), counted(row.rows_after))
    return (
        row.table_key,
        _versions(row),
        "publish" if verified else "leave, unless forced",
        _classification(row),
        some(row.operations, _MOST_OPERATIONS) or "?",
        f"{rows[0]} (same number)" if rows[0] == rows[1] != "?" else " → ".join(dict.fromkeys(rows)),
        "?" if row.evidence is None else _CONTENT[row.evidence.content_equal],
    )


def _versions(row: RepairRow) -> str:
    newest = row.lance_head_version or "?"  # 0 where it cannot be read
    return " → ".join(str(v) for v in dict.fromkeys((row.manifest_version, newest)))


def _classification(row: RepairRow) -> str:
    return row.classification.value + (f" ({row.error})" if row.error else "")


def _evidence(rows: Sequence[RepairRow]) -> Iterator[Section]:
    """What is known about each table, then the rows that were looked at. Pure."""
    found = [(row.table_key, row.evidence) for row in rows if row.evidence is not None]
    for key, evidence in found:
        yield Section(title=f"Evidence: {key}", lines=tuple(_facts(evidence)))
    for key, evidence in found:
        yield Section.table(
            f"Rows that differ: {key}",
            ("Row id", "Change", "Values"),
            ((str(row.row_id), row.change.value, _values(row)) for row in evidence.shown),
        )


def _facts(found: DriftEvidence) -> Iterator[str]:
    yield f"evidence ({found.tier.value}): {verdict_text(found)}"
    if found.problem:
        yield f"could not be read: {found.problem}"
    yield from (fact for fact in (rows_text(found), *map(column_text, found.columns)) if fact is not None)
    yield from (f"version {version_text(version)}" for version in found.versions[:_MOST_EVIDENCE])
    if hidden := max(len(found.versions) - _MOST_EVIDENCE, 0) + found.versions_omitted:
        yield f"and {count(hidden, 'more version')}"
    branches = [f"branch {b.branch} {b.note}" for b in found.branches if b.branch is not None]
    yield from branches[:_MOST_EVIDENCE]
    if len(branches) > _MOST_EVIDENCE:
        yield f"and {count(len(branches) - _MOST_EVIDENCE, 'more branch', 'more branches')}"
    yield from (f"if published: {sentence}" for sentence in found.if_published)
    if found.costs:
        yield f"cost: {', '.join(cost_text(cost) for cost in found.costs)}"


def _values(row: ShownRow) -> str:
    """Every value that differs, then some of the others by which a person knows the row. Pure."""
    differ = [value for value in row.values if value.before != value.after]
    equal = [value for value in row.values if value.before == value.after]
    values = [*differ, *equal[: max(_MOST_EQUAL - len(differ), 0)]]
    hidden = len(row.values) - len(values) + row.columns_omitted
    more = [f"and {count(hidden, 'more column')}"] if hidden else []
    return ", ".join([*(f"{v.column}: {value_text(v)}" for v in values), *more])


def report_view(report: RepairReport) -> View:
    """What was published, and what was refused with the evidence that is left to review. Pure."""
    header = ("Table", "Action", "Classification", "Version", "Operations")
    rows = tuple(
        (row.table_key, row.action.value, _classification(row), _versions(row), some(row.operations, _MOST_OPERATIONS))
        for row in report.tables
    )
    open_ones = [row for row in report.tables if row.action in {RepairAction.PREVIEW, RepairAction.REFUSED}]
    return View.of(
        f"repair {report.uri} — {'confirm' if report.confirm else 'preview'} mode, "
        f"{count(len(report.tables), 'table')}",
        Section.table("Tables", header, rows),
        *_evidence(open_ones),
        facts=(("Already published", some(report.already_published, _MOST_NAMES)),) if report.already_published else (),
    )
