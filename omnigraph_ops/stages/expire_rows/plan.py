"""Plan row retention: a fixed cut per table, what lies below it, and a digest to approve."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from omnigraph_ops.coordination.environment import refuse_wrong_clock_unwritten
from omnigraph_ops.coordination.freezes import refuse_any_freeze
from omnigraph_ops.coordination.guards import looks
from omnigraph_ops.coordination.sealed import expiry, seal
from omnigraph_ops.engine import EngineCli, EngineRelease, typical_release
from omnigraph_ops.errors import InvalidInput, OpsError, StalePlan, unknown_table
from omnigraph_ops.graph.graph import Graph, spec_of
from omnigraph_ops.graph.layout import now_us
from omnigraph_ops.graph.schema import TypeFacts, read_type_facts
from omnigraph_ops.graph.state import BranchState, TableEntry
from omnigraph_ops.lance.gateway import Dataset, DatasetMissing, live_rows, version_print
from omnigraph_ops.lance.rows import (
    Clock,
    Keys,
    Rows,
    besides,
    clock_of,
    columns_below,
    count_below,
    expired_rows,
    ids_below,
    ids_left,
    left_with_fewer,
    touching,
)
from omnigraph_ops.lance.tables import index_facts, inherited_indexes
from omnigraph_ops.models.rows import EdgeRows, RowBounds, RowPolicy, RowRetentionPlan, TableRowPlan, distinct
from omnigraph_ops.parallel import in_parallel
from omnigraph_ops.quantities import count
from omnigraph_ops.stages.expire_rows.statements import deletion_of

_RENEWED = (
    "{rows:,} rows that another process renewed while the engine merged are gone ({ids}); version {version} of the "
    "table has their new values until a cleanup: load them again"
)
_NAMED = 5
"""Ids in an error; more of them are counted only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeEnds:
    """An edge table and its columns that hold ids of one node type."""

    table_key: str
    columns: tuple[str, ...]


def edges_of(facts: Mapping[str, TypeFacts], table_key: str) -> tuple[EdgeEnds, ...]:
    """The edge tables that end at a node type; none for a table of edges. Pure."""
    if not table_key.startswith("node:"):
        return ()
    name = table_key.removeprefix("node:")
    found = ((key, fact.ends_at(name)) for key, fact in sorted(facts.items()))
    return tuple(EdgeEnds(table_key=key, columns=columns) for key, columns in found if columns)


def state_of(graph: Graph, branch: str | None) -> BranchState:
    """What a branch publishes now; `InvalidInput` when there is no such branch. Reads."""
    if branch is not None and graph.format.publishes and branch not in graph.branches():
        raise InvalidInput(f"{graph.uri} has no branch {branch!r}; nothing was deleted")
    return graph.state(branch)


def entry_in(graph: Graph, state: BranchState, table_key: str) -> TableEntry:
    """A table of a state; `UnknownTable` when it is not live there. Pure."""
    entry = state.get(table_key)
    if entry is None or entry not in graph.maintained(state):
        known = [e.table_key for e in graph.maintained(state)]
        raise unknown_table(graph.uri, table_key, known, "nothing was deleted")
    return entry


def lifetime_of(graph: Graph, entry: TableEntry, dataset: Dataset, counted: Dataset) -> str:
    """A digest of a table and its properties; another table or property with the same name has another one. Pure.

    Args:
        dataset: the table as it is now.
        counted: the version whose rows the plan counted.
    """
    columns = [(field.name(), int(field.id())) for field in dataset.lance_schema.fields()]
    properties = spec_of(graph, entry).properties if graph.format.publishes else ()
    ids = [(p.name, p.property_id) for p in properties]
    text = repr((entry.path, entry.identity, columns, ids, version_print(counted)))
    return hashlib.sha256(text.encode()).hexdigest()


def branch_lifetime(graph: Graph, branch: str | None) -> tuple[tuple[int, str], ...]:
    """Lance's identifier of a branch, which no other branch of its name has; empty for main. Reads."""
    if branch is None or not graph.format.publishes:
        return ()
    return next((ref.identifier for ref in graph.lance_branches() if ref.name == branch), ())


def dataset_in(graph: Graph, state: BranchState, table_key: str) -> Dataset:
    """A table of a state at its published version. Reads."""
    return graph.open_pinned(entry_in(graph, state, table_key))


def rows_in(graph: Graph, state: BranchState) -> dict[str, int]:
    """How many rows every table of a state has. Reads manifests."""
    entries = graph.maintained(state)
    counts = in_parallel(lambda e: live_rows(graph.open_pinned(e)), entries, workers=graph.settings.concurrency)
    return dict(zip((e.table_key for e in entries), counts, strict=True))


def edges_at(graph: Graph, state: BranchState, ends: tuple[EdgeEnds, ...], ids: Keys) -> dict[str, Keys]:
    """Ids of the edges at those nodes, by edge table. Reads."""
    return {e.table_key: touching(dataset_in(graph, state, e.table_key), e.columns, ids) for e in ends}


def over_bounds(expired: int, rows: int, *, max_rows: int, max_share: float) -> str | None:
    """Which bound so many rows exceed, as a phrase; None when they are inside. Pure."""
    if expired > max_rows:
        return f"{count(expired, 'row')} below the cut and at most {max_rows:,} may go (--max-rows)"
    if expired > max_share * rows:
        share = expired / rows
        below = f"{expired:,} of {count(rows, 'row')} ({share:.0%}) below the cut"
        return f"{below} and at most {max_share:.0%} may go (--max-share)"
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Aged:
    """A table of a plan as some state has it."""

    state: BranchState
    entry: TableEntry
    dataset: Dataset
    clock: Clock
    cut: int

    @classmethod
    def of(cls, graph: Graph, state: BranchState, table: TableRowPlan) -> Aged:
        """That table at its published version. Reads."""
        entry = entry_in(graph, state, table.table_key)
        dataset = graph.open_pinned(entry)
        clock = clock_of(dataset, table.policy.property, table.policy.unit)
        return cls(state=state, entry=entry, dataset=dataset, clock=clock, cut=table.cut)

    def rows(self) -> int:
        """Rows below the cut. Reads."""
        return count_below(self.dataset, self.clock, self.cut)

    def ids(self) -> Keys:
        """The ids of the rows below the cut. Reads."""
        return ids_below(self.dataset, self.clock, self.cut)

    def columns(self, *names: str) -> Rows:
        """Some columns of the rows below the cut. Reads."""
        return columns_below(self.dataset, self.clock, self.cut, names)

    def refuse_another(self, graph: Graph, table: TableRowPlan) -> None:
        """Raise `StalePlan` unless this is the table that was counted, with the properties that it had. Reads."""
        again = "nothing was deleted; plan again"
        pin = replace(self.entry, branch=table.lance_branch, version=table.manifest_version)
        try:
            counted = graph.open_pinned(pin)
        except DatasetMissing:
            raise StalePlan(
                f"version {table.manifest_version} of {table.table_key}, which was counted, is gone: nothing tells "
                f"whether the table is still the same; {again}"
            ) from None
        if lifetime_of(graph, self.entry, self.dataset, counted) != table.lifetime:
            raise StalePlan(
                f"{table.table_key} is another table than the one that was counted, or has other properties: it was "
                f"renamed, altered, made anew or put back from a copy; {again}"
            )

    def refuse_over_bounds(self, plan: RowRetentionPlan, table: TableRowPlan) -> int:
        """How many rows are below the cut now; `StalePlan` when the plan does not allow so many. Reads."""
        expired = self.rows()
        over = over_bounds(expired, live_rows(self.dataset), max_rows=table.max_rows, max_share=plan.max_share)
        if expired and over:
            raise StalePlan(f"{table.table_key}: {over}; nothing was deleted; plan again")
        return expired

    def lost_renewals(self, graph: Graph, since: TableEntry, gone: Keys) -> str | None:
        """What to say of rows that are gone although somebody had renewed them, None when there are none. Reads.

        Before 0.9.0 the engine plans a merge on one version of a table and deletes by id on top of another one.
        Versions that no others committed since are not looked at, so this costs nothing where nobody else writes.

        Args:
            since: the table as the plan of the merge saw it.
            gone: ids of rows that were below the cut there and are not in the table any more.
        """
        if (self.entry.path, self.entry.branch) != (since.path, since.branch):
            return None
        for version in range(self.entry.version - 1, since.version, -1):
            try:
                then = replace(self, dataset=graph.open_version(self.entry, version))
            except DatasetMissing:
                continue
            if lost := besides(ids_left(then.dataset, gone), then.ids()).to_pylist():
                ids = ", ".join(map(repr, lost[:_NAMED])) + (" …" if len(lost) > _NAMED else "")
                return _RENEWED.format(rows=len(lost), ids=ids, version=version)
        return None


def _lasting_drift(graph: Graph, table_key: str) -> str | None:
    """The drift of a table that a few looks agree on; a writer between commit and publish is none. Reads."""
    problem = None
    for _ in looks(graph):
        entry = entry_in(graph, graph.state(), table_key)
        try:
            head = int(graph.open_head(entry).version)
        except OpsError as error:
            return str(error)
        if head == entry.version:
            return None
        problem = f"{table_key} has drifted ({entry.version} → {head}); `omnigraph-ops check` says what settles that"
    return problem


def unwritable(graph: Graph, state: BranchState, table_keys: Iterable[str]) -> str | None:
    """Why the engine must not, or would not, delete in these tables of a state; None when it may. Reads."""
    if state.branch is not None:
        return _lost_indexes(graph, state, table_keys)
    return next((problem for key in table_keys if (problem := _lasting_drift(graph, key)) is not None), None)


def _lost_indexes(graph: Graph, state: BranchState, table_keys: Iterable[str]) -> str | None:
    """Why the engine must not delete on a branch of this branch, None when it may. Reads manifests.

    Lance 9.0 takes what a branch inherited for its own when it makes a branch of it: nobody finds the files of those
    indexes. Writes fail there, and searches on the branch into which such a branch is merged.
    """
    for entry in (entry_in(graph, state, key) for key in table_keys):
        dataset = graph.open_pinned(entry)
        own = entry.branch == state.branch
        found = inherited_indexes(dataset) if own else tuple(i.name for i in index_facts(dataset))
        if found:
            return (
                f"{entry.table_key} has indexes on branch {state.branch!r} that it inherited ({', '.join(found)}): the "
                "engine loses them on a branch of a branch, on which it would delete; merge the branch into main and "
                "expire the rows there"
            )
    return None


_MICROS = 1_000_000


def plan_row_retention(
    graph: Graph,
    policies: Sequence[RowPolicy],
    *,
    bounds: RowBounds | None = None,
    branch: str | None = None,
    engine: EngineCli | None = None,
) -> RowRetentionPlan:
    """What would expire now, table by table. Reads.

    A table beyond the bounds, or drifted, is listed as refused; the others proceed.

    Raises:
        InvalidInput: a policy cannot be carried out on its table, whatever the rows are.
        UnknownTable: a policy names a table that is not live.
        GraphFrozen: the graph, or a table of it, is frozen.
    """
    bounds = bounds or RowBounds()
    ordered = distinct(policies)
    refuse_any_freeze(graph)
    refuse_wrong_clock_unwritten(graph.storage)
    state, planned_at_us = state_of(graph, branch), now_us()
    facts = read_type_facts(graph.storage) if graph.format.publishes else {}
    planner = _RowPlanner(
        graph=graph, state=state, facts=facts, bounds=bounds, planned_at_us=planned_at_us, engine=engine
    )
    return seal(
        RowRetentionPlan(
            uri=graph.uri,
            stamp=graph.stamp,
            branch=branch,
            branch_lifetime=branch_lifetime(graph, branch),
            planned_at_us=planned_at_us,
            expires_at_us=expiry(planned_at_us, graph.settings),
            max_share=bounds.max_share,
            tables=tuple(in_parallel(planner.table, ordered, workers=graph.settings.concurrency)),
            digest="",
        )
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _RowPlanner:
    """What every table of one plan is judged by."""

    graph: Graph
    state: BranchState
    facts: Mapping[str, TypeFacts]
    bounds: RowBounds
    planned_at_us: int
    engine: EngineCli | None

    def table(self, policy: RowPolicy) -> TableRowPlan:
        """The plan of one table. Reads."""
        entry = entry_in(self.graph, self.state, policy.table_key)
        self._refuse_unspeakable(entry, policy)
        dataset = self.graph.open_pinned(entry)
        clock = clock_of(dataset, policy.property, policy.unit)
        at_us = self.planned_at_us - policy.older_than_secs * _MICROS
        cut = clock.cut_before(at_us, days=not self.graph.format.publishes)
        if cut < 0:
            raise InvalidInput(f"{policy.table_key}: the cut is before 1970; nothing was deleted")
        found = expired_rows(dataset, clock, cut)
        aged = Aged(state=self.state, entry=entry, dataset=dataset, clock=clock, cut=cut)
        nodes, edges = self._going(aged) if found.expired else (None, {})
        return TableRowPlan(
            policy=policy,
            table_key=policy.table_key,
            cut=cut,
            cut_at_us=clock.at_us(cut),
            manifest_version=entry.version,
            lance_branch=entry.branch,
            lifetime=lifetime_of(self.graph, entry, dataset, dataset),
            rows=found.rows,
            expired=found.expired,
            max_rows=self._most(found.expired),
            oldest_us=None if found.oldest is None else clock.at_us(found.oldest),
            newest_us=None if found.newest is None else clock.at_us(found.newest),
            sample=found.sample,
            edges=tuple(EdgeRows(table_key=key, rows=len(ids)) for key, ids in edges.items() if key != entry.table_key),
            refused=self._refused(entry, found.expired, found.rows) or self._too_few(nodes, edges),
        )

    def _refuse_unspeakable(self, entry: TableEntry, policy: RowPolicy) -> None:
        """Raise `InvalidInput` where the engine's language cannot name the rows. Pure."""
        if self.graph.format.publishes:
            deletion_of(
                spec_of(self.graph, entry),
                self.facts[policy.table_key],
                policy.property,
                has_edges=bool(edges_of(self.facts, policy.table_key)),
                release=self._release(),
            )

    def _release(self) -> EngineRelease | None:
        return self.engine.release if self.engine is not None else typical_release(self.graph.stamp)

    def _most(self, expired: int) -> int:
        return expired if self.bounds.max_rows is None else self.bounds.max_rows

    def _going(self, aged: Aged) -> tuple[Keys | None, dict[str, Keys]]:
        """Ids of the nodes that go, and of the edges by edge table, as far as anybody asks for them. Reads."""
        key = aged.entry.table_key
        if ends := edges_of(self.facts, key):
            nodes = aged.ids()
            return nodes, edges_at(self.graph, self.state, ends, nodes)
        return None, {key: aged.ids()} if key in self.facts and self.facts[key].least else {}

    def _too_few(self, nodes: Keys | None, edges: Mapping[str, Keys]) -> str | None:
        """Why the engine would not delete these, for what the schema demands of a node that stays. Reads."""
        release = self._release()
        if release is None or not release.counts_edges:
            return None
        for key, gone in edges.items():
            least = self.facts[key].least
            if least and (node := left_with_fewer(dataset_in(self.graph, self.state, key), gone, nodes, least)):
                return (
                    f"{node!r} would be left with fewer edges of {key} than the {least} that the schema demands "
                    f"(@card), which omnigraph {release.text} refuses"
                )
        return None

    def _refused(self, entry: TableEntry, expired: int, rows: int) -> str | None:
        if expired == 0:
            return None
        over = over_bounds(expired, rows, max_rows=self._most(expired), max_share=self.bounds.max_share)
        return self._unwritable(entry) or over

    def _unwritable(self, entry: TableEntry) -> str | None:
        """Why the engine would not write to the table or the edges beside it, None when it would. Reads."""
        if not self.graph.format.publishes:
            return None
        keys = (entry.table_key, *(e.table_key for e in edges_of(self.facts, entry.table_key)))
        return unwritable(self.graph, self.state, keys)
