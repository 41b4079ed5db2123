"""Look at a graph for a cut: all that its branches reach, what is pinned under which tags, and what of it is gone."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from tenacity import Retrying, retry_if_exception_type, retry_if_result, stop_after_attempt, wait_fixed

from omnigraph_ops.coordination.freezes import contract_folder, damage_of, freeze_of_tag, tag_name
from omnigraph_ops.errors import CorruptGraph, InvalidInput, RecoveryPending, StorageError
from omnigraph_ops.graph.graph import Graph, select_entries
from omnigraph_ops.graph.layout import (
    COMMITS_DIR,
    EXPIRY_BRANCH_PREFIX,
    INTERNAL_DATASETS,
    MANIFEST_DIR,
    ROOT_FILES,
    STAGING_SUFFIX,
    old_manifest_file_name,
    version_path,
)
from omnigraph_ops.graph.references import base_states, dropped_manifests, lost_reference
from omnigraph_ops.graph.schema import staging_files
from omnigraph_ops.graph.state import BranchState, TableEntry
from omnigraph_ops.lance.gateway import BranchRef, Dataset, DatasetMissing, LanceFailure, lance_errors
from omnigraph_ops.models.freeze import CutProblem, Freeze, FrozenBranch, FrozenCut, FrozenPin, PinRole
from omnigraph_ops.parallel import in_parallel

Chain = tuple[str | None, int]
"""A Lance branch (None: the main chain) and a version of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PinnedDataset:
    """A dataset of a cut."""

    role: PinRole
    table_key: str
    path: str


def dataset_pins(
    freeze_id: str, subject: PinnedDataset, wanted: Collection[Chain], refs: Sequence[BranchRef]
) -> tuple[FrozenPin, ...]:
    """The wanted versions of one dataset and those where the branches among them begin, each with its tag. Pure.

    Raises:
        CorruptGraph: a wanted version is on a branch that the dataset does not have.
    """
    by_name = {ref.name: ref for ref in refs}
    for branch, version in wanted:
        if branch is not None and branch not in by_name:
            raise CorruptGraph(
                f"{subject.table_key}: version {version} is published from branch {branch!r}, which is gone"
            )
    forks = fork_points(wanted, refs) - set(wanted)
    ordered = [
        *((subject.role, c) for c in sorted(wanted, key=_order)),
        *((PinRole.FORK, c) for c in sorted(forks, key=_order)),
    ]
    return tuple(
        FrozenPin(
            role=role,
            table_key=subject.table_key,
            path=subject.path,
            branch=branch,
            version=version,
            tag=tag_name(freeze_id, number),
            lifetime=by_name[branch].identifier if branch is not None else (),
        )
        for number, (role, (branch, version)) in enumerate(ordered)
    )


def fork_points(wanted: Collection[Chain], refs: Sequence[BranchRef]) -> set[Chain]:
    """Where the branches of these versions begin, and the branches that those are on, down to main. Pure."""
    by_name = {ref.name: ref for ref in refs}
    found: set[Chain] = set()
    pending = [branch for branch, _ in wanted]
    while pending:
        ref = by_name.get(pending.pop() or "")
        # A parent may be gone: the engine deletes forks whatever was made from them.
        if ref is None or (ref.parent_branch is not None and ref.parent_branch not in by_name):
            continue
        point = (ref.parent_branch, ref.parent_version)
        if point not in found:
            found.add(point)
            pending.append(ref.parent_branch)
    return found


def _order(chain: Chain) -> tuple[str, int]:
    return chain[0] or "", chain[1]


_looking = Retrying(
    # A branch was deleted between two reads, or somebody wrote. Damage is still there in the last look.
    retry=retry_if_exception_type((DatasetMissing, CorruptGraph))
    | retry_if_result(lambda look: not (look and look.cut.one_instant)),
    stop=stop_after_attempt(8),
    wait=wait_fixed(0.1),
    retry_error_callback=lambda last: last.outcome and last.outcome.result(),
)
"""Looks until a cut is of one instant; the last one is taken as it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedCut:
    """A cut and the files of the root that belong to it."""

    cut: FrozenCut
    contract: tuple[tuple[str, bytes], ...]


def observe_cut(graph: Graph, freeze_id: str, tables: Sequence[str] = ()) -> ObservedCut:
    """The cut as it is now, with the tags that it will need. Reads.

    Raises:
        RecoveryPending: a schema apply is under way, or crashed: contract and tables may disagree.
        UnknownTable: a named table is not live.
        CorruptGraph, StorageError: something of the cut cannot be read.
    """
    if not graph.format.publishes:
        return ObservedCut(cut=_plain_cut(graph, freeze_id, tables), contract=())
    look = _looking(_look, graph, freeze_id, tables)
    if look is None:
        raise _schema_apply(graph)
    return look


def refuse_schema_apply(graph: Graph) -> None:
    """Raise `RecoveryPending` while the contract may not be that of the graph manifest. Reads."""
    if staging_files(graph.storage) or graph.is_locked():
        raise _schema_apply(graph)


def _schema_apply(graph: Graph) -> RecoveryPending:
    return RecoveryPending(
        f"a schema apply of {graph.uri} is under way, or a crashed one or a fence is left; nothing was frozen; "
        "try again when it is done, or run `omnigraph-ops check`"
    )


def stored_manifest(graph: Graph, path: str, branch: str | None, version: int) -> str | None:
    """The Lance manifest file of a version, relative to the graph; None when it is gone. Reads."""
    found = version_path(path, version, branch)
    older = f"{found.rpartition('/')[0]}/{old_manifest_file_name(version)}"
    return next((p for p in (found, older) if graph.storage.exists(p)), None)


def _look(graph: Graph, freeze_id: str, tables: Sequence[str]) -> ObservedCut | None:
    """The cut, of one instant if that can be had; None while the contract changes. Reads."""
    refuse_schema_apply(graph)
    branches, contract = _heads(graph)
    states = [graph.state(branch, version) for branch, version in branches]
    pins = _graph_pins(graph, freeze_id, states, tables)
    dropped = None if tables else _dropped(graph, pins)
    # One that began since may have published, with the files of the root still to come. Before the heads are read
    # again: these tell of one that is done by then.
    refuse_schema_apply(graph)
    now = _heads(graph)
    if now[1] != contract:
        return None
    cut = FrozenCut(
        stamp=graph.stamp,
        branches=tuple(FrozenBranch(branch=s.branch, manifest_version=s.manifest_version) for s in states),
        pins=pins,
        contract=tuple(name for name, _ in contract),
        contract_digest=_digest_of(contract),
        # Heads that did not move since: all of this was there at one instant.
        one_instant=now == (branches, contract),
        dropped=dropped,
    )
    return ObservedCut(cut=cut, contract=contract)


def _dropped(graph: Graph, pins: Sequence[FrozenPin]) -> tuple[str, ...]:
    """Folders of dropped types, noted now: a type that is made later would look like one of them. Reads."""
    manifests = dropped_manifests(graph, {pin.path for pin in pins})
    return tuple(sorted(path.partition("/_versions/")[0] for path in manifests))


def _digest_of(contract: Sequence[tuple[str, bytes]]) -> str:
    """By which a copy of the contract is known to be as it was. Pure."""
    parts = (f"{name} {hashlib.sha256(content).hexdigest()}\n" for name, content in contract)
    return f"sha256:{hashlib.sha256(''.join(parts).encode()).hexdigest()}"


def _heads(graph: Graph) -> tuple[tuple[tuple[str | None, int], ...], tuple[tuple[str, bytes], ...]]:
    """The branches with their versions, and the files of the root; two equal ones in a row are one instant. Reads.

    Branches before main: what a branch reads on main's chains is then never ahead of main.
    Branches on which row retention deletes are scratch that goes in any outcome: they are no part of a cut.
    """
    names = [name for name in graph.branches() if not name.startswith(EXPIRY_BRANCH_PREFIX)]
    versions = [(name, int(graph.manifest(name).version)) for name in names]
    main = int(graph.manifest().version)
    files = sorted(n for n in graph.storage.list("") if n in ROOT_FILES and not n.endswith(STAGING_SUFFIX))
    contract = tuple((name, graph.storage.read(name)) for name in files)
    return ((None, main), *versions), contract


def _graph_pins(
    graph: Graph, freeze_id: str, states: Sequence[BranchState], tables: Sequence[str]
) -> tuple[FrozenPin, ...]:
    chosen = {e.path for s in states for e in s.entries if not tables or e.table_key in tables}
    if tables:
        chosen |= {e.path for e in select_entries(graph, states[0], tables)}
    wanted: dict[str, set[Chain]] = {}
    keys: dict[str, str] = {}
    bases, stored = base_states(graph, states), partial(stored_manifest, graph)
    read = [e for state in states for e in state.entries if e.path in chosen]
    # A version that only merges read may have gone with an earlier cleanup.
    merged = [e for s in bases for e in s.entries if e.path in chosen and stored(e.path, e.branch, e.version)]
    for entry in (*read, *merged):
        wanted.setdefault(entry.path, set()).add((entry.branch, entry.version))
        keys.setdefault(entry.path, entry.table_key)

    def one(path: str) -> tuple[FrozenPin, ...]:
        subject = PinnedDataset(role=PinRole.TABLE, table_key=keys[path], path=path)
        return _pins(graph, freeze_id, subject, wanted[path])

    found = in_parallel(one, sorted(wanted), workers=graph.settings.concurrency)
    manifest = PinnedDataset(role=PinRole.GRAPH, table_key=MANIFEST_DIR, path=MANIFEST_DIR)
    return (
        *_pins(graph, freeze_id, manifest, {(s.branch, s.manifest_version) for s in (*states, *bases)}),
        *_lineage_pins(graph, freeze_id, states),
        *(pin for pins in found for pin in pins),
    )


def _lineage_pins(graph: Graph, freeze_id: str, states: Sequence[BranchState]) -> list[FrozenPin]:
    """The other internal datasets as of the cut, the commit graph with those of its branches. Reads."""
    found: list[FrozenPin] = []
    names = {s.branch for s in states}
    for path in INTERNAL_DATASETS:
        if path == MANIFEST_DIR or not graph.storage.list(f"{path}/_versions"):
            continue
        main = graph.open_at(path)
        if (lost := lost_reference(graph, states, path)) is not None:
            raise CorruptGraph(f"{lost}; nothing was frozen")
        refs = [r for r in graph.lance.branches(main) if r.name in names]
        wanted: set[Chain] = {(None, int(main.version)), *((r.name, head_of(graph, path, r.name)) for r in refs)}
        if path == COMMITS_DIR:
            wanted = {(s.branch, _version_of_lineage(graph, s, wanted)) for s in states if s.branch in dict(wanted)}
        found += _pins(graph, freeze_id, PinnedDataset(role=PinRole.LINEAGE, table_key=path, path=path), wanted)
    return found


def _version_of_lineage(graph: Graph, state: BranchState, heads: set[Chain]) -> int:
    """The newest version of the commit graph that knows no commit past the cut. Reads.

    A writer appends its commit after it published, so this is at most one commit behind, as after a crash.
    """
    version = dict(heads)[state.branch]
    while version > 1:
        dataset = graph.open_at(COMMITS_DIR, branch=state.branch, version=version)
        with lance_errors(f"read {graph.uri}/{COMMITS_DIR}"):
            rows = dataset.to_table(columns=["manifest_branch", "manifest_version"]).to_pylist()
        own = [r["manifest_version"] for r in rows if r["manifest_branch"] == state.branch]
        if max(own, default=0) <= state.manifest_version:
            break
        version -= 1
    return version


def _plain_cut(graph: Graph, freeze_id: str, tables: Sequence[str]) -> FrozenCut:
    """Every dataset at its HEAD, with the HEAD of each of its branches and the versions that tags keep. Reads."""
    state = graph.state()
    entries = select_entries(graph, state, tables)

    def one(entry: TableEntry) -> tuple[FrozenPin, ...]:
        dataset = graph.open_pinned(entry)
        names = [ref.name for ref in graph.lance.branches(dataset)]
        if names and "?" in graph.table_uri(entry):
            raise InvalidInput(
                f"{entry.path} has a branch and a '?' in its path, for which Lance stores the branch outside of the "
                "dataset; nothing was frozen; copy it under another name, or name the other tables"
            )
        heads: set[Chain] = {(name, head_of(graph, entry.path, name)) for name in names}
        subject = PinnedDataset(role=PinRole.TABLE, table_key=entry.table_key, path=entry.path)
        return _pins(graph, freeze_id, subject, {(None, entry.version), *heads, *_tagged(graph, entry, dataset, names)})

    found = in_parallel(one, entries, workers=graph.settings.concurrency)
    if not found:
        raise InvalidInput(f"there is nothing to freeze at {graph.uri}")
    pins = tuple(pin for pins in found for pin in pins)
    return FrozenCut(stamp=graph.stamp, branches=(), pins=pins, contract=(), one_instant=len(entries) == 1)


def _tagged(graph: Graph, entry: TableEntry, dataset: Dataset, branches: Sequence[str]) -> set[Chain]:
    """Versions that somebody's tags keep; a tag on what is gone keeps none. Reads."""
    return {
        (branch, version)
        for name, branch, version in graph.lance.tags(dataset)
        if freeze_of_tag(name) is None
        and (branch is None or branch in branches)
        and stored_manifest(graph, entry.path, branch, version) is not None
    }


def _pins(graph: Graph, freeze_id: str, subject: PinnedDataset, wanted: set[Chain]) -> tuple[FrozenPin, ...]:
    """The pins of one dataset; a fork point that was collected long ago is none. Reads."""
    refs = graph.lance.branches(graph.open_at(subject.path))
    pins = dataset_pins(freeze_id, subject, wanted, refs)
    return tuple(
        p for p in pins if p.role is not PinRole.FORK or stored_manifest(graph, p.path, p.branch, p.version) is not None
    )


def head_of(graph: Graph, path: str, branch: str) -> int:
    """The newest version of a Lance branch of a dataset. Reads."""
    return int(graph.open_at(path, branch=branch).version)


_NO_BRANCH = "its branch was deleted, which takes the files of the branch in spite of tags"
_OTHER_BRANCH = "its branch was deleted and another one of that name was made"


def verify_cut(graph: Graph, freeze: Freeze, *, with_damaged: bool = False) -> tuple[CutProblem, ...]:
    """Everything of the cut that is gone, by dataset; empty while all of it is there. Reads.

    Looks at branches, tags and manifests; that every file is there, `cut_files` says.

    Args:
        with_damaged: name datasets that cannot be read, too, where one would end a list. Whoever copies the cut or
            extends the freeze gets the error.
    """
    found = in_parallel(
        partial(_of_damaged if with_damaged else _of_dataset, graph),
        list(freeze.cut.by_dataset().values()),
        workers=graph.settings.concurrency,
    )
    return (*(problem for problems in found for problem in problems), *_of_contract(graph, freeze))


def _of_contract(graph: Graph, freeze: Freeze) -> list[CutProblem]:
    """What is not as it was of the root's files that a freeze keeps. Reads."""
    folder, cut = contract_folder(freeze.freeze_id), freeze.cut
    found, lost = list[tuple[str, bytes]](), dict[str, str]()
    for name in cut.contract:
        try:
            found.append((name, graph.storage.read(f"{folder}/{name}")))
        except FileNotFoundError:
            lost[name] = "the copy that the freeze kept of it is gone"
        except StorageError as error:
            lost[name] = f"the copy that the freeze kept of it cannot be read: {error}"
    if not lost and cut.contract_digest not in {None, _digest_of(found)}:
        lost[folder] = "the copies of the schema that the freeze kept are not as they were"
    return [CutProblem(path=path, branch=None, version=0, reason=why) for path, why in lost.items()]


def _of_dataset(graph: Graph, pins: list[FrozenPin]) -> list[CutProblem]:
    try:
        dataset = graph.open_at(pins[0].path)
    except DatasetMissing:
        return [_problem(pin, "its dataset is gone") for pin in pins]
    branches = lifetimes(graph, dataset)
    tags = {name: (branch, version) for name, branch, version in graph.lance.tags(dataset)}
    found = []
    for pin in pins:
        reason = lost_branch(pin, branches)
        if reason is None and tags.get(pin.tag) != (pin.branch, pin.version):
            reason = "its tag is gone"
        if reason is None and stored_manifest(graph, pin.path, pin.branch, pin.version) is None:
            reason = "the version was removed"
        found += [_problem(pin, reason)] if reason is not None else []
    return found


def _of_damaged(graph: Graph, pins: list[FrozenPin]) -> list[CutProblem]:
    try:
        return _of_dataset(graph, pins)
    except LanceFailure as error:
        reason = f"its dataset cannot be read: {damage_of(graph, pins[0].path, error)}"
        return [_problem(pin, reason) for pin in pins]


def lifetimes(graph: Graph, dataset: Dataset) -> dict[str, tuple[tuple[int, str], ...]]:
    """What tells each branch of a dataset from one of the same name before or after it. Reads."""
    return {ref.name: ref.identifier for ref in graph.lance.branches(dataset)}


def lost_branch(pin: FrozenPin, branches: Mapping[str, tuple[tuple[int, str], ...]]) -> str | None:
    """Why the branch of a pin is not the frozen one any more, None while it is. Pure."""
    if pin.branch is None:
        return None
    if pin.branch not in branches:
        return _NO_BRANCH
    return None if branches[pin.branch] == pin.lifetime else _OTHER_BRANCH


def _problem(pin: FrozenPin, reason: str) -> CutProblem:
    return CutProblem(path=pin.path, branch=pin.branch, version=pin.version, reason=reason)
