"""What became of a write whose sidecar the engine does not settle by itself, if all of it is proven. Reads only.

Published, and taken back. A process of engine 0.9.0 that finds the sidecar of another one before its commits are
confirmed takes that writer for dead. It writes the sidecar anew, with its plan of a rollback, and restores the tables.
The writer may be alive, publish meanwhile, and be acknowledged. What is left then is a sidecar that calls a published
write unconfirmed: all writes of the engine fail with "its manifest delta differs". A publish is one commit of the graph
manifest, so the graph commit that the sidecar names proves the whole of it, and its rows are those that readers see.

Not published, and refused. Nobody was told that such a write is done, and its transactions are in the sidecar, so it is
rolled back, and the graph is as without it:

- A merge that publishes a version of a table that is published already. Where a table of the source differs by its
  version alone, as after a load of rows that were there, the engine plans to publish the version of the target again.
  Its graph manifest has that version, so every open tries the same in vain, and the graph can be neither written nor
  exported.
- A merge that met a publish of another process to one of its tables, and committed on top of it. Every later open finds
  another published version than the sidecar names.
- Any write that another process took for dead and rolled back after its last commit. It goes on, confirms its commits,
  and so writes its sidecar again, without what the rollback noted there. Every later open misses these notes, and fails
  with "no durable rollback audit outcomes". `after_cleanup` proves it where a cleanup removed its transactions.
- Loads and mutations of several processes that crossed: each committed to tables of the other. The engine sees in the
  sidecar of each the commits of the other, and refuses "a restore that could discard another writer".
- A write to Lance branches of its own that another process removed, as it rolled the write back, while a merge had the
  branch of the graph publish other versions. Every later open looks for these branches, and fails.
- The first write of a graph branch to tables of which an older Lance branch of that name is left, as after a merge that
  made the graph branch publish the versions of main. It announces itself, deletes these Lance branches and makes them
  anew. When it is killed in between, every later open looks for branches that fork where the sidecar says, and fails.
- A write of the engine, where another write was published to its branch after it began. An open of the engine rolls it
  back. A running server does not open the graph again: it refuses every write to the branch until it is restarted.
- A write that an optimize of another process took along: that publishes the newest version of a table, with whatever is
  in it, and so does an open that finishes it. The write itself is refused then, and so is every open, because the
  published version is not the one that it began from. Its rows go, those that were published before it are put on top.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace

from omnigraph_ops.errors import OpsError
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.lance_manifest import CONTENT_PRESERVING, VersionRecord, commits_after
from omnigraph_ops.graph.layout import chain_folder
from omnigraph_ops.graph.publish import Published
from omnigraph_ops.graph.sidecars import AuditOutcome, ExactWrite, Sidecar, SidecarFile, SidecarPin, list_sidecars
from omnigraph_ops.graph.state import BranchState, GraphCommit, TableEntry
from omnigraph_ops.lance.evidence import unreadable
from omnigraph_ops.stages.recovery.after_cleanup import is_without
from omnigraph_ops.stages.recovery.unpublished import Overlaid, brings_back, is_put_back


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenBack:
    """A published write: what it published is committed on top of the restores."""

    published: Published
    outcomes: tuple[AuditOutcome, ...]
    """What it published."""
    tables: tuple[Overlaid, ...]
    """Those on which a restore lies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unpublishable:
    """A write that nobody published, and that the engine does not settle by itself: it is rolled back."""

    tables: tuple[Overlaid, ...]
    """Its tables that are ahead of what is published, or were published with its rows."""
    files: tuple[SidecarFile, ...]
    """The sidecars that announce what lies there: any of their writers may be at work."""
    why: str
    """Why the engine settles it no more, to begin a sentence."""

    @property
    def outcomes(self) -> tuple[AuditOutcome, ...]:
        """What becomes of its tables."""
        return tuple(
            AuditOutcome(table_key=t.entry.table_key, from_version=t.head, to_version=t.base) for t in self.tables
        )


Proof = TakenBack | Unpublishable


def proof_of(graph: Graph, file: SidecarFile, beside: Sequence[SidecarFile] | None) -> Proof | None:
    """What became of a write; None where the engine settles its sidecar by itself, or too little is known. Reads.

    Args:
        beside: all sidecars of the graph; None to list them here.
    """
    try:
        if (seen := _seen(graph, file)) is None:
            return None
        return _taken_back(seen) or _refused(seen) or _swept_away(seen) or _not_forked(seen) or _entangled(seen, beside)
    except OpsError:
        return None


def is_refused(graph: Graph, file: SidecarFile) -> bool:
    """Whether every open of the engine fails over a rollback: its notes are lost, or the write is published. Reads."""
    try:
        seen = _seen(graph, file)
    except OpsError:
        return False
    return seen is not None and seen.is_rolled_back and (seen.is_published or not seen.is_noted)


@dataclass(frozen=True, slots=True, kw_only=True)
class _SeenWrite:
    """A sidecar about an exact write, and its branch."""

    graph: Graph
    file: SidecarFile
    sidecar: Sidecar
    write: ExactWrite
    now: BranchState
    visible: Mapping[str, GraphCommit]
    """Its commits, by id."""

    @property
    def is_published(self) -> bool:
        return self.write.lineage.graph_commit_id in self.visible

    @property
    def is_rolled_back(self) -> bool:
        return self.write.rollback_graph_commit_id in self.visible

    @property
    def is_noted(self) -> bool:
        return self.write.rollback_audit_outcomes is not None


def _seen(graph: Graph, file: SidecarFile) -> _SeenWrite | None:
    """What there is to prove something of; None where a sidecar is about no such write. Reads."""
    sidecar = file.sidecar
    write = None if sidecar is None or sidecar.names_a_table_twice else sidecar.exact_write
    if sidecar is None or write is None or not sidecar.tables:
        return None
    # The state first: what is published in between is then visible, and no proof takes it for unpublished.
    now = graph.state(sidecar.branch)
    visible = {commit.commit_id: commit for commit in graph.format.commits(graph.context, sidecar.branch)}
    return _SeenWrite(graph=graph, file=file, sidecar=sidecar, write=write, now=now, visible=visible)


def _taken_back(seen: _SeenWrite) -> TakenBack | None:
    """What a write that its sidecar calls unconfirmed published, if only restores lie on top of it. Reads."""
    graph, sidecar, write = seen.graph, seen.sidecar, seen.write
    commit = seen.visible.get(write.lineage.graph_commit_id)
    if commit is None or not write.is_unconfirmed or not sidecar.tables or seen.is_rolled_back:
        return None  # with its rollback published, too, which of the two counts is for a person
    then = graph.state(sidecar.branch, commit.manifest_version)
    outcomes, restored = list[AuditOutcome](), list[Overlaid]()
    for pin in sidecar.tables:
        made, entry = _past(then, pin), _past(seen.now, pin)
        if made is None or entry is None:
            return None
        table = Overlaid.at(graph, entry)
        if not _is_only_restored(graph, pin, made, table):
            return None
        outcomes.append(
            AuditOutcome(table_key=pin.table_key, from_version=pin.expected_version, to_version=made.version)
        )
        restored += [table] if table.is_ahead else []
    published = Published(manifest_version=commit.manifest_version, commit_id=commit.commit_id)
    return TakenBack(published=published, outcomes=tuple(outcomes), tables=tuple(restored))


def _past(state: BranchState, pin: SidecarPin) -> TableEntry | None:
    """What a state publishes of a table of a sidecar, on the chain and past what the writer began from. Pure."""
    entry = state.get(pin.table_key)
    is_past = entry is not None and entry.version > pin.expected_version
    where = (pin.identity, state.branch)
    return entry if entry is not None and is_past and (entry.identity, entry.branch) == where else None


def _is_only_restored(graph: Graph, pin: SidecarPin, made: TableEntry, table: Overlaid) -> bool:
    """Whether all commits after what the write published are restores, the engine's or ours. Reads."""
    since = commits_after(graph.storage, table.chain, made.version, table.head)
    if not all(_is_restore(graph, made, record, pin.expected_version) for record in since):
        return False
    # What an earlier attempt of ours published ends with what it put on top.
    published = table.entry.version - made.version
    return published == 0 or (table.head >= table.entry.version and is_put_back(since[published - 1]))


def _is_restore(graph: Graph, entry: TableEntry, record: VersionRecord, *began: int) -> bool:
    """Whether a commit to the chain of a table brings back what is published, or what a writer began from. Reads."""
    return is_put_back(record) or brings_back(graph, entry, record, began)


def _refused(seen: _SeenWrite) -> Unpublishable | None:
    """What a write committed that the engine refuses, if only that lies on what is published. Reads."""
    why = None if seen.is_published else _why_refused(seen)
    return None if why is None else _of_its_own(seen, seen.sidecar.tables, why)


def _why_refused(seen: _SeenWrite) -> str | None:
    """Why an engine refuses a write that is not published, to begin a sentence; None where it settles it. Pure."""
    if seen.is_rolled_back:
        # With its notes an open completes the rollback.
        return None if seen.is_noted else "another process of the engine rolled it back, and its writer went on"
    refused = None
    if seen.sidecar.protocol_v4 is not None:
        refused = _published_again(seen.write, seen.now) or _overtaken(seen.sidecar, seen.now)
    return refused or _left_behind(seen.write, seen.now)


def _published_again(write: ExactWrite, state: BranchState) -> str | None:
    for slot in write.intended_delta.table_updates:
        entry = state.get(slot.table_key)
        if entry is None or slot.confirmed is None or entry.identity != slot.identity:
            continue
        if (entry.version, entry.branch) == (slot.confirmed.table_version, slot.confirmed.table_branch):
            return f"it publishes version {entry.version} of {entry.table_key} again, which the graph manifest refuses"
    return None


def _overtaken(sidecar: Sidecar, state: BranchState) -> str | None:
    for pin in sidecar.tables:
        entry = state.get(pin.table_key)
        if entry is not None and entry.identity == pin.identity and entry.version > pin.expected_version:
            return f"nothing of it is published, and another write of {pin.table_key} was published since it began"
    return None


def _left_behind(write: ExactWrite, state: BranchState) -> str | None:
    head = write.authority.graph_head
    if head is None or head == state.head_commit_id:
        return None
    return "another write was published after it began, and a running server of the engine does not roll it back"


def _of_its_own(seen: _SeenWrite, pins: Iterable[SidecarPin], why: str) -> Unpublishable | None:
    """The write, if nothing of it is published, and only that, index builds and restores lie on what is. Reads."""
    graph, planned, tables = seen.graph, seen.write.transactions, list[Overlaid]()
    for pin in pins:
        table = Overlaid.of_pin(graph, seen.now, pin)
        if table is None:
            return None
        # A cleanup may have removed the transactions that the published version is made of.
        is_gone = seen.is_rolled_back and is_without(graph, seen.sidecar, seen.write, pin, table)
        began = table.base if is_gone else pin.expected_version
        commits = commits_after(graph.storage, table.chain, began, table.head)
        taken_along = _published_of(graph, table, pin, commits, planned)
        if taken_along or not _is_known(graph, table, pin, commits, planned):
            return None
        tables += [table] if table.is_ahead else []
    return Unpublishable(tables=tuple(tables), files=(seen.file,), why=why)


def _swept_away(seen: _SeenWrite) -> Unpublishable | None:
    """A write to Lance branches from which nothing is published, and of which one is gone. Reads."""
    graph, write = seen.graph, seen.write
    was_there = seen.is_noted or not write.is_unconfirmed
    if not was_there or seen.is_rolled_back or seen.is_published:
        return None
    is_gone = False
    for pin in seen.sidecar.tables:
        entry = seen.now.get(pin.table_key)
        if entry is None or entry.identity != pin.identity or pin.table_branch in {None, entry.branch}:
            return None
        known = graph.lance.branches(graph.open_pinned(entry))
        is_gone |= pin.table_branch not in {branch.name for branch in known}
    if not is_gone:
        return None
    why = "nothing of it is published, and another process of the engine removed what it had committed"
    return Unpublishable(tables=(), files=(seen.file,), why=why)


def _not_forked(seen: _SeenWrite) -> Unpublishable | None:
    """A write that was stopped before it made anew the Lance branches that an older write left. Reads."""
    if not seen.write.is_unconfirmed or seen.is_rolled_back or seen.is_published:
        return None
    on_chain, is_left = list[SidecarPin](), False
    for pin in seen.sidecar.tables:
        entry = seen.now.get(pin.table_key)
        if entry is None or entry.identity != pin.identity:
            return None
        if pin.table_branch in {None, entry.branch}:
            on_chain.append(pin)
        else:
            # What it committed to a Lance branch that is not published goes with that, which the next write makes anew.
            is_left |= _is_older_fork(seen, entry, pin)
    if not is_left:
        return None
    why = "nothing of it is published, and it was stopped before it made the Lance branches of its tables anew"
    if seen.sidecar.protocol_v4 is not None:
        why += "; the same merge fails until a load to these tables of the branch has removed the old ones"
    return _of_its_own(seen, on_chain, why)


def _is_older_fork(seen: _SeenWrite, entry: TableEntry, pin: SidecarPin) -> bool:
    """Whether the Lance branch that a write is to make is one of an older write. Reads."""
    graph, forks_at = seen.graph, seen.write.forks_at(pin)
    known = graph.lance.branches(graph.open_pinned(entry))
    fork = next((branch for branch in known if branch.name == pin.table_branch and not branch.is_bare), None)
    if fork is None:
        return False
    head = int(graph.open_at(entry.path, branch=pin.table_branch).version)
    commits = commits_after(graph.storage, chain_folder(entry.path, fork.name), fork.parent_version, head)
    is_untouched = fork.parent_version == head == forks_at
    return not is_untouched and not any(commit.transaction_id in seen.write.transactions for commit in commits)


def _entangled(seen: _SeenWrite, beside: Sequence[SidecarFile] | None) -> Unpublishable | None:
    """A write that crossed with others or that an optimize took along, if only such lie on what is put back. Reads."""
    graph, sidecar, write = seen.graph, seen.sidecar, seen.write
    listed = list_sidecars(graph.storage, graph.format.sidecar_version) if beside is None else beside
    files = _unpublished(seen, listed)
    if sidecar not in [file.sidecar for file in files]:
        return None
    planned = frozenset[str]().union(*map(_transactions, files))
    tables, is_crossed, is_taken_along = list[Overlaid](), False, False
    for pin in sidecar.tables:
        table = Overlaid.of_pin(graph, seen.now, pin)
        if table is None:
            return None
        commits = commits_after(graph.storage, table.chain, pin.expected_version, table.head)
        taken_along = _published_of(graph, table, pin, commits, planned)
        if taken_along:
            table = replace(table, base=min(taken_along) - 1)
            if unreadable(None, graph.open_version(table.entry, table.base)) is not None:
                return None  # readers have what is published
        if not _is_known(graph, table, pin, commits, planned):
            return None
        is_taken_along |= bool(taken_along)
        is_crossed |= _is_crossed(sidecar, write, commits, planned)
        tables += [table] if table.is_ahead else []
    if is_taken_along:
        why = "an optimize published its commits before it could, and so it was refused"
    elif is_crossed:
        why = "nothing of it is published, and its commits crossed with those of another write"
    else:
        return None
    return Unpublishable(tables=tuple(tables), files=files, why=why)


def _is_crossed(sidecar: Sidecar, write: ExactWrite, commits: Sequence[VersionRecord], planned: Set[str]) -> bool:
    """Whether with what a write committed to a table lies what it would not commit itself. Pure."""
    first = min((c.version for c in commits if c.transaction_id in write.transactions), default=None)
    above = [c for c in commits if first is not None and c.version > first]
    if sidecar.protocol_v3 is not None:
        # Below it, too: otherwise it would depend on the names of the sidecars which of them are settled in one run.
        others = any(c.transaction_id in planned - write.transactions for c in commits)
        return bool(above) or (first is not None and others)
    # It goes on by itself, with index builds for instance.
    return any(is_put_back(c) or c.operation in {"ReserveFragments", "Rewrite"} for c in above)


def _transactions(file: SidecarFile) -> frozenset[str]:
    """The transactions of the write that a sidecar announces. Pure."""
    write = file.sidecar.exact_write if file.sidecar is not None else None
    return write.transactions if write is not None else frozenset()


def _unpublished(seen: _SeenWrite, listed: Sequence[SidecarFile]) -> tuple[SidecarFile, ...]:
    """The sidecars of writes of a branch of which neither a publish nor a rollback is visible. Reads."""
    visible = seen.visible.keys()
    return tuple(
        file
        for file in listed
        if file.sidecar is not None and file.sidecar.branch == seen.sidecar.branch
        if (write := file.sidecar.exact_write) is not None
        if visible.isdisjoint({write.lineage.graph_commit_id, write.rollback_graph_commit_id})
    )


def _published_of(
    graph: Graph, table: Overlaid, pin: SidecarPin, commits: Sequence[VersionRecord], planned: Set[str]
) -> list[int]:
    """The versions of these writes that are in the published one: no restore below it took them off. Reads."""
    below = [commit for commit in commits if commit.version <= table.entry.version]
    made = [commit.version for commit in below if commit.transaction_id in planned]

    def is_off(version: int) -> bool:
        before = range(pin.expected_version, version)
        return any(c.version > version and brings_back(graph, table.entry, c, before) for c in below)

    return [version for version in made if not is_off(version)]


def _is_known(
    graph: Graph, table: Overlaid, pin: SidecarPin, commits: Sequence[VersionRecord], planned: Set[str]
) -> bool:
    """Whether only these writes, since them what changes no row, and restores lie on what is put back. Reads."""
    first = min((commit.version for commit in commits if commit.transaction_id in planned), default=table.head)
    return all(
        commit.transaction_id in planned
        or (commit.version > first and commit.operation in CONTENT_PRESERVING)
        or _is_restore(graph, table.entry, commit, pin.expected_version, table.base, table.entry.version)
        for commit in commits
        if commit.version > table.base
    )
