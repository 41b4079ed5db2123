"""Publish table versions: one row-level compare-and-swap on the graph manifest per logical publish."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph_ops.errors import OpsError, OutcomeUnknown, PublishConflict, StalePlan
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.lance_manifest import highest_fragment_id, name_after, read_manifest
from omnigraph_ops.graph.layout import new_ulid, now_us, version_path
from omnigraph_ops.graph.stamp import Lineage
from omnigraph_ops.graph.state import BranchState, TableEntry, TableUpdate, VersionMetadata
from omnigraph_ops.lance.commits import Change, Draft, drafting
from omnigraph_ops.lance.gateway import CommitContention, Dataset, LanceFailure, lance_errors, live_rows


@contextlib.contextmanager
def drafts_of(
    graph: Graph, entry: TableEntry, pinned: Dataset, changes: Sequence[Change], *, mark: str
) -> Iterator[list[Draft]]:
    """Draft the commits of changes one upon the other, from the published version on. Reads the graph.

    Raises:
        CommitConflict: a change does not fit what the one before it makes.
    """
    made: list[Draft] = []
    newest, before = read_manifest(graph.storage, entry.path, entry.version), pinned
    with drafting(newest) as drafts:
        for change in changes:
            change.refuse_stale(before)
            highest = max((f.fragment_id for f in before.get_fragments()), default=-1)
            operation = change.operation(max(highest, highest_fragment_id(newest)))
            made.append(drafts.add(name_after(newest), operation, mark))
            newest, before = made[-1].manifest, made[-1].dataset
        yield made


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """A publish that landed."""

    manifest_version: int
    commit_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """A graph manifest that was read ahead of a publish. The swap fails if what the publish rests on moved since."""

    manifest: Dataset
    state: BranchState


def read_ahead(graph: Graph, tables: Collection[str], branch: str | None = None) -> Ready:
    """What a publish of some tables needs to know, so that the publish itself is short. Reads."""
    manifest = graph.manifest(branch)
    if graph.lance.strip_auto_cleanup(manifest):
        manifest = graph.manifest(branch)
    return Ready(manifest=manifest, state=graph.decode(manifest, branch, tables=tables))


def table_update(graph: Graph, entry: TableEntry, dataset: Dataset) -> TableUpdate:
    """The update that publishes the open version of a table's main chain. Reads."""
    return version_update(graph, entry, int(dataset.version), rows=live_rows(dataset))


def version_update(graph: Graph, entry: TableEntry, version: int, *, rows: int) -> TableUpdate:
    """The update that publishes a version of the chain of a table that has so many live rows. Reads."""
    relative = version_path(entry.path, version, entry.branch)
    info = graph.storage.stat(relative)
    metadata = VersionMetadata(
        manifest_path=graph.format.manifest_path(graph.context, relative),
        manifest_size=info.size,
        e_tag=info.e_tag,
        naming_scheme="V2",
    )
    return TableUpdate(entry=entry, version=version, row_count=rows, metadata_json=metadata.to_json())


def is_published(graph: Graph, update: TableUpdate) -> bool:
    """Whether main published, now or once, exactly the file of this version, which its tag tells from others. Reads."""
    with lance_errors(f"read the graph manifest of {graph.uri}"):
        rows = graph.context.manifest_rows.of(graph.manifest())
    return bool(pc.any(pc.equal(rows.column("metadata"), update.metadata_json)).as_py())


def merge_rows(manifest: Dataset, rows: pa.Table) -> None:
    """Put rows into a graph manifest by their ids, in one compare-and-swap; the handle moves to its version. Writes."""
    (
        manifest.merge_insert(["object_id"])
        .when_matched_update_all()
        .when_not_matched_insert_all()
        .conflict_retries(0)
        .use_index(False)
        .execute(rows)
    )


def publish(
    graph: Graph,
    updates: tuple[TableUpdate, ...],
    *,
    actor: str | None,
    branch: str | None = None,
    ready: Ready | None = None,
) -> Published:
    """Publish all updates as one graph commit, each expecting the pin it was made from. Writes.

    Commit id and time are minted once; every attempt starts from a fresh scan, the first one from `ready` if given.

    Raises:
        StalePlan: a pin is not what its update expects; nothing was published.
        PublishConflict: every attempt lost; nothing was published.
        OutcomeUnknown: the store failed and re-reading could not settle whether it landed.
    """
    wanted = _Publish(graph, updates, Lineage(commit_id=new_ulid(), created_at_us=now_us(), actor=actor), branch)
    for _ in range(graph.settings.publish_attempts):
        version = wanted.merge(ready or read_ahead(graph, [u.entry.table_key for u in updates], branch))
        ready = None
        if version is not None:
            wanted.append_lineage(version)
            return Published(manifest_version=version, commit_id=wanted.lineage.commit_id)
    raise PublishConflict(
        f"manifest publish exhausted {graph.settings.publish_attempts - 1} retries against concurrent "
        f"writers on {graph.uri}; nothing was published; run again when it is quieter"
    )


@dataclass(frozen=True, slots=True)
class _Publish:
    """A logical publish, the same at every attempt."""

    graph: Graph
    updates: tuple[TableUpdate, ...]
    lineage: Lineage
    branch: str | None

    def merge(self, ready: Ready) -> int | None:
        """The graph manifest's version when it landed, None when it lost the swap. Writes."""
        graph, manifest, state = self.graph, ready.manifest, ready.state
        self._check_expectations(state)
        rows = graph.format.publish_rows(state, self.updates, self.lineage)
        if rows is None:
            return state.manifest_version
        try:
            with lance_errors(f"publish to {graph.uri}"):
                merge_rows(manifest, rows)
        except CommitContention:
            return None
        except LanceFailure as error:
            return self._settle(error)
        # The handle advanced to the version that our merge made; rebased or not, our rows must be in it.
        if not self._landed(manifest):
            raise OutcomeUnknown(
                f"the publish to {graph.uri} reported success but its rows are not there; "
                "run `omnigraph-ops check` before anything else"
            )
        return int(manifest.version)

    def append_lineage(self, version: int) -> None:
        """Append the commit to a lineage of its own, if the graph has one. Writes."""
        try:
            self.graph.format.append_lineage(self.graph.context, self.branch, version, self.lineage)
        except OpsError as error:
            raise OutcomeUnknown(
                f"{error}; version {version} of {self.graph.uri} is published, and perhaps without its commit row; no "
                "row is lost; run `omnigraph-ops recover`"
            ) from error

    def _check_expectations(self, state: BranchState) -> None:
        for update in self.updates:
            current = state.get(update.entry.table_key)
            actual = current.version if current else 0
            if current is None or actual != update.entry.version or current.identity != update.entry.identity:
                raise StalePlan(
                    f"stale view of '{update.entry.table_key}': expected manifest table version "
                    f"{update.entry.version} but current is {actual} — refresh and retry"
                )

    def _settle(self, error: LanceFailure) -> int:
        """Decide an unknown outcome by our own rows; never retries blind. Reads."""
        try:
            manifest = self.graph.manifest(self.branch)
            if self._landed(manifest):
                return int(manifest.version)
        except LanceFailure:
            raise OutcomeUnknown(
                f"{error}; whether the publish to {self.graph.uri} landed could not be read back; "
                "run `omnigraph-ops check` before anything else"
            ) from error
        raise error

    def _landed(self, manifest: Dataset) -> bool:
        with lance_errors(f"read the graph manifest of {self.graph.uri}"):
            rows = self.graph.context.manifest_rows.of(manifest)
        return self.graph.format.has_published(rows, self.updates, self.lineage)
