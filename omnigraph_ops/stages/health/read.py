"""Look at every table and vector index for its score, and at the graph before and after a run. Reads only."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from omnigraph_ops.errors import OpsError
from omnigraph_ops.graph.graph import Graph, select_entries, spec_of
from omnigraph_ops.graph.layout import MANIFEST_DIR, any_version_of
from omnigraph_ops.graph.schema import TableSpec
from omnigraph_ops.graph.state import TableEntry
from omnigraph_ops.lance.gateway import Dataset, LanceFailure
from omnigraph_ops.lance.index_entries import limited_kinds, shown_dead_entries, with_dead_entries
from omnigraph_ops.lance.reader_limits import most_task_bytes
from omnigraph_ops.lance.tables import TableFacts
from omnigraph_ops.lance.vector_indexes import Answers, VectorFacts, answers, vector_facts
from omnigraph_ops.models.freeze import FrozenPin, PinRole
from omnigraph_ops.models.health import HealthReport, InternalHealth, TableHealth, VectorHealth, VersionGap
from omnigraph_ops.models.history import Measured
from omnigraph_ops.outcomes.results import Snapshot
from omnigraph_ops.parallel import in_parallel
from omnigraph_ops.stages.freeze.files import gaps
from omnigraph_ops.stages.freeze.observe import head_of
from omnigraph_ops.stages.optimize.budget import last_run
from omnigraph_ops.stages.optimize.fragments import missing_indexes, part, parts_of, shares_of
from omnigraph_ops.stages.optimize.index_plan import foreign_note
from omnigraph_ops.stages.optimize.observe import columns_without_values, facts_under, policy_of, text_state
from omnigraph_ops.stages.optimize.plan import OptimizePolicy, owners_note
from omnigraph_ops.storage.inventory import files_below

VERSIONS, DEAD_BYTES = 5, 15
"""With the parts that optimize can win back these make 100."""
_MANY_VERSIONS = 1000
_MORE_LOOKS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFacts:
    """What lies in the store of one table."""

    versions: int
    dead_bytes: int | None
    """None where it cannot be told."""
    stored_bytes: int


def score_table(
    spec: TableSpec,
    facts: TableFacts,
    stored: StoredFacts,
    *,
    target_rows: int,
    cutoff: int,
    task_bytes: int | None = None,
    pending: Sequence[str] = (),
) -> TableHealth:
    """The health of one table; declared indexes on the columns of `pending` cannot be built yet. Pure."""
    shares = shares_of(facts, spec, target_rows, pending, task_bytes)
    dead = (stored.dead_bytes or 0) / stored.stored_bytes if stored.stored_bytes else 0.0
    parts = (
        *parts_of(shares, cutoff),
        part("versions", min(1.0, max(0, stored.versions - 1) / _MANY_VERSIONS), VERSIONS),
        part("dead_bytes", min(1.0, dead), DEAD_BYTES),
    )
    return TableHealth(
        table_key=spec.table_key,
        score=round(100 - sum(p.points for p in parts)),
        parts=parts,
        rows=facts.rows,
        fragments=len(facts.fragments),
        small_fragments=shares.small_fragments,
        cutoff=cutoff,
        data_bytes=sum(f.data_bytes for f in facts.fragments),
        small_share=shares.small_share,
        deleted_share=shares.deleted_share,
        unindexed_share=shares.unindexed_share,
        worst_index=shares.worst_index,
        versions=stored.versions,
        dead_bytes=stored.dead_bytes,
    )


def report_of(uri: str, stamp: int, graph_version: int, tables: Sequence[TableHealth]) -> HealthReport:
    """All tables, worst first, and their mean by bytes. Pure."""
    told = [(t.score, max(t.data_bytes, 1)) for t in tables if t.score is not None]
    weight = sum(size for _, size in told)
    return HealthReport(
        uri=uri,
        stamp=stamp,
        graph_version=graph_version,
        score=round(sum(score * size for score, size in told) / weight) if told else None,
        tables=tuple(sorted(tables, key=lambda t: (-1 if t.score is None else t.score, t.table_key))),
    )


_DRIFTED = "drifted, nothing is optimized: omnigraph-ops check says what settles it"


def health(graph: Graph, *, tables: Sequence[str] = (), recall: int = 0, files: bool = False) -> HealthReport:
    """The score of every maintained table (or of those named), worst first. Reads.

    A table that cannot be looked at carries its error in its row.

    Args:
        recall: how many queries each vector index is asked; none by default, which reads metadata only.
        files: whether to look for every file that published versions need, of main and of all branches.
    """
    state = graph.state()
    entries = select_entries(graph, state, tables)
    policy = policy_of(graph)

    def one(entry: TableEntry) -> TableHealth:
        try:
            head = graph.open_head(entry)
            reopen = partial(graph.lance.open, graph.table_uri(entry), version=int(head.version))
            its = policy.within(most_task_bytes(head))
            facts = facts_under(head, its)
            vectors = _vectors_of(head, facts, reopen, recall)
            return replace(_look(graph, entry, head, facts, its), vectors=vectors)
        except OpsError as error:
            return TableHealth(table_key=entry.table_key, error=str(error))

    rows = in_parallel(one, entries, workers=graph.settings.concurrency)
    report = report_of(graph.uri, graph.stamp, state.manifest_version, rows)
    report = replace(report, gaps=_gaps(graph, tables) if files else None)
    return report if tables else replace(report, internal=_internal(graph))


def _gaps(graph: Graph, tables: Sequence[str]) -> tuple[VersionGap, ...]:
    """Published versions that are not all there. What another look does not find was work of somebody else. Reads."""
    found = _look_for_gaps(graph, tables)
    for _ in range(_MORE_LOOKS):
        found = _look_for_gaps(graph, tables) if found else ()
    return found


def _look_for_gaps(graph: Graph, tables: Sequence[str]) -> tuple[VersionGap, ...]:
    published, unread = _published(graph, tables)
    found = gaps(graph, tuple(published))
    return (
        *unread,
        *(
            VersionGap(
                table_key=gap.pin.table_key,
                branches=tuple(published[gap.pin]),
                version=gap.pin.version,
                lacks=gap.reason,
                is_unknown=gap.is_unknown,
                is_rebuildable=gap.is_of_indexes and "main" in published[gap.pin] and graph.lance.may_rebuild_indexes,
            )
            for gap in found
        ),
    )


def _published(graph: Graph, tables: Sequence[str]) -> tuple[dict[FrozenPin, list[str]], list[VersionGap]]:
    """The versions of these tables, or of all, with the branches that publish them; branches that cannot be read."""
    found, unread = dict[FrozenPin, list[str]](), list[VersionGap]()
    for branch in (None, *graph.branches()):
        publisher = branch or "main"
        try:
            entries = graph.state(branch).entries
        except OpsError as error:
            unread.append(_unread(MANIFEST_DIR, publisher, error))
            continue
        for entry in (e for e in entries if not tables or e.table_key in tables):
            found.setdefault(_pin(entry.table_key, entry.path, entry.branch, entry.version), []).append(publisher)
    for key, path in _of_heads(graph, found, tables):
        for name, head in _heads(graph, path):
            publisher = name or "main"
            if isinstance(head, OpsError):
                unread.append(_unread(key, publisher, head))
            elif publisher not in (publishers := found.setdefault(_pin(key, path, name, head), [])):
                publishers.append(publisher)
    return found, unread


def _of_heads(graph: Graph, found: Iterable[FrozenPin], tables: Sequence[str]) -> list[tuple[str, str]]:
    """The datasets whose readers take the newest version of each Lance branch, by key with their path. Reads."""
    if not graph.format.publishes:
        return sorted({(pin.table_key, pin.path) for pin in found})
    # Whoever reads the state of a graph has read its manifest.
    return [] if tables else [(k, p) for k, p in graph.format.internal_tables(graph.context) if p != MANIFEST_DIR]


def _heads(graph: Graph, path: str) -> Iterator[tuple[str | None, int | OpsError]]:
    """The newest version of a dataset and of each of its Lance branches, or why it cannot be read. Reads."""
    live = graph.branches() if graph.format.publishes else None
    try:
        main = graph.open_at(path)
        names = [ref.name for ref in graph.lance.branches(main) if live is None or ref.name in live]
        yield None, int(main.version)
    except OpsError as error:
        yield None, error
        return
    for name in names:
        try:
            yield name, head_of(graph, path, name)
        except OpsError as error:
            yield name, error


def _unread(table_key: str, branch: str, error: OpsError) -> VersionGap:
    lacks = f"the branch cannot be read: {error}"
    return VersionGap(table_key=table_key, branches=(branch,), version=None, lacks=lacks)


def _pin(key: str, path: str, branch: str | None, version: int) -> FrozenPin:
    return FrozenPin(role=PinRole.TABLE, table_key=key, path=path, branch=branch, version=version, tag="")


def _internal(graph: Graph) -> tuple[InternalHealth, ...]:
    """One listing of each internal table. Reads."""
    found = []
    for key, path in graph.format.internal_tables(graph.context):
        files = list(files_below(graph.storage, path))
        names = (file.path.removeprefix(f"{path}/_versions/") for file in files)
        found.append(
            InternalHealth(
                table_key=key,
                versions=sum(any_version_of(name) is not None for name in names),
                fragments=len(graph.open_at(path).get_fragments()),
                files=len(files),
                stored_bytes=sum(file.size for file in files),
            )
        )
    return tuple(found)


def _look(graph: Graph, entry: TableEntry, head: Dataset, facts: TableFacts, policy: OptimizePolicy) -> TableHealth:
    spec = spec_of(graph, entry)
    found = score_table(
        spec,
        facts,
        _stored(graph, entry, spec, facts),
        target_rows=policy.target_rows,
        cutoff=policy.thresholds.fragments,
        task_bytes=policy.task_bytes,
        pending=tuple(columns_without_values(head, missing_indexes(spec, facts))),
    )
    run = last_run(graph, entry)
    return replace(
        found,
        maintained_at_us=run.maintained_at_us if run is not None else None,
        note=_note(graph, entry, facts, policy) if head.version == entry.version else _DRIFTED,
    )


def _note(graph: Graph, entry: TableEntry, facts: TableFacts, policy: OptimizePolicy) -> str | None:
    texts = text_state(graph, entry, spec_of(graph, entry), facts)
    return "; ".join(filter(None, (owners_note(facts, policy), foreign_note(facts, texts)))) or None


def _stored(graph: Graph, entry: TableEntry, spec: TableSpec, facts: TableFacts) -> StoredFacts:
    """One listing of the main chain: its versions, and what is stored beyond the newest of them. Reads.

    An upper bound of what a cleanup can free: what branches, tags and holds keep counts as dead, and so do
    orphans. The side files of blobs have no size in a manifest, so there it cannot be told.
    """
    versions, stored = 0, 0
    for file in files_below(graph.storage, entry.path):
        folder, _, name = file.path.removeprefix(f"{entry.path}/").partition("/")
        if folder == "_versions":
            versions += any_version_of(name) is not None
        elif folder in {"data", "_indices"}:
            stored += file.size
    used = sum(f.data_bytes for f in facts.fragments) + sum(i.size_bytes for i in facts.indexes)
    dead = None if spec.blob_columns else max(0, stored - used)
    return StoredFacts(versions=versions, dead_bytes=dead, stored_bytes=stored)


def versions_now(graph: Graph) -> Snapshot:
    """The version of the graph and of every table: one look at what is published. Reads."""
    state = graph.state()
    tables = tuple((e.table_key, Measured(version=e.version)) for e in state.entries)
    # Plain Lance has tables and no version of the whole.
    version = state.manifest_version if graph.format.publishes else None
    return Snapshot(graph=Measured(version=version), tables=tables)


def everything_now(graph: Graph) -> Snapshot:
    """Versions and health of every maintained table: metadata and one listing per table. Reads."""
    versions = versions_now(graph)
    report = health(graph)
    published = dict(versions.tables)
    tables = tuple((t.table_key, _measured(t, published.get(t.table_key, Measured()).version)) for t in report.tables)
    return Snapshot(graph=_sum(report, versions.graph.version), tables=tables)


def look(at: Callable[[Graph], Snapshot], graph: Graph) -> Snapshot:
    """What can be seen; a graph that cannot be read has its record nevertheless. Reads."""
    try:
        return at(graph)
    except OpsError:
        return Snapshot()


def _measured(table: TableHealth, version: int | None) -> Measured:
    if table.error is not None:
        return Measured(version=version)
    return Measured(
        version=version,
        rows=table.rows,
        fragments=table.fragments,
        data_bytes=table.data_bytes,
        dead_bytes=table.dead_bytes,
        versions=table.versions,
        deleted_share=table.deleted_share,
        unindexed_share=table.unindexed_share,
        score=table.score,
    )


def _sum(report: HealthReport, version: int | None) -> Measured:
    """The graph as a whole; shares are those of its rows. Pure."""
    tables = [t for t in report.tables if t.error is None]
    dead = [t.dead_bytes for t in tables if t.dead_bytes is not None]
    return Measured(
        version=version,
        rows=sum(t.rows for t in tables),
        fragments=sum(t.fragments for t in tables),
        data_bytes=sum(t.data_bytes for t in tables),
        dead_bytes=sum(dead) if dead else None,
        versions=sum(t.versions for t in tables),
        deleted_share=_mean((t.deleted_share, t.rows) for t in tables),
        unindexed_share=_mean((t.unindexed_share, t.rows) for t in tables),
        score=report.score,
    )


def _mean(shares: Iterable[tuple[float, int]]) -> float | None:
    told = tuple(shares)
    rows = sum(weight for _, weight in told)
    return round(sum(share * weight for share, weight in told) / rows, 6) if rows else None


def _vectors_of(
    head: Dataset, facts: TableFacts, reopen: Callable[[], Dataset], queries: int
) -> tuple[VectorHealth, ...]:
    """The vector indexes of a table at its HEAD. Reads metadata; with queries, samples of the vectors and the index."""
    found = vector_facts(head)
    shown = shown_dead_entries(facts, with_dead_entries(head, facts, limited_kinds(texts=False)).found)
    told = []
    for index in found:
        asked, failure = None, None
        try:
            asked = answers(reopen, index, queries) if queries else None
        except LanceFailure as error:
            failure = str(error)
        told.append(replace(_health(index, asked, dead_entries=index.name in shown), recall_error=failure))
    return tuple(told)


def _health(facts: VectorFacts, found: Answers | None, *, dead_entries: bool) -> VectorHealth:
    return VectorHealth(
        name=facts.name,
        column=facts.column,
        kind=facts.kind,
        metric=facts.metric,
        partitions=len(facts.sizes),
        recommended=facts.wanted,
        rows=facts.rows,
        smallest=min(facts.sizes, default=0),
        largest=max(facts.sizes, default=0),
        segments=facts.segments,
        uncovered_rows=facts.uncovered_rows,
        size_bytes=facts.size_bytes,
        problem=facts.problem,
        dead_entries=dead_entries,
        recall=found.recall if found else None,
        recall_at_1=found.recall_at_1 if found else None,
        bytes_per_query=found.bytes_read if found else None,
        partitions_per_query=found.partitions_read if found else None,
        drift=found.drift if found else None,
    )
