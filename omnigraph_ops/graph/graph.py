"""An open graph: the read face that every stage starts from, and what it is worked on with."""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self
from urllib.parse import unquote

from omnigraph_ops.config.settings import Settings
from omnigraph_ops.errors import (
    CorruptGraph,
    StorageError,
    TransientError,
    UnknownTable,
    UnsupportedStamp,
    lacks_rights,
    unknown_table,
)
from omnigraph_ops.graph.layout import MANIFEST_DIR, is_schema_apply_lock, version_path
from omnigraph_ops.graph.schema import Catalog, TableSpec, is_half_staged, staging_files
from omnigraph_ops.graph.stamp import GraphContext, StampFormat, stamp_text
from omnigraph_ops.graph.state import BranchState, TableEntry
from omnigraph_ops.lance.gateway import BranchRef, Dataset, LanceFailure, LanceGateway, lance_errors
from omnigraph_ops.progress import Run
from omnigraph_ops.storage.inventory import Levels, Stored, stored_sizes, upper_levels, walk
from omnigraph_ops.storage.location import is_table_path
from omnigraph_ops.storage.store import Storage

_LOG = logging.getLogger(__name__)


class HeldFence:
    """A schema-apply lock that this process put up. Another thread may take it down in the middle of a run."""

    def __init__(self, identifier: tuple[tuple[int, str], ...]) -> None:
        self.identifier = identifier
        """Of the lock branch's lifetime."""
        self._down = threading.Event()

    @property
    def is_up(self) -> bool:
        """Whether writers are still kept away, as far as this process does it."""
        return not self._down.is_set()

    def take_down(self) -> None:
        """Say that writers are not kept away any more; whoever says so removes the lock. Changes this object."""
        self._down.set()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunContext:
    """How one run works on a graph. Only the fence changes while it lasts, and it is asked each time."""

    settings: Settings
    """The deployment's, with what the run says otherwise."""
    run: Run = field(default_factory=Run)
    """Whom stages tell of their units and ask whether to stop."""
    fence: HeldFence | None = None

    @property
    def is_fenced(self) -> bool:
        """Whether this run's own fence keeps writers away right now."""
        return self.fence is not None and self.fence.is_up

    @property
    def exclusive(self) -> bool:
        """Whether nobody else publishes right now: so the settings say, or the fence sees to it."""
        return self.settings.exclusive or self.is_fenced


# Compared by identity, and without a repr: what it is reached with holds secrets.
@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Graph:
    """One graph at one place, as one run sees it.

    Every read is of the newest version; only the accepted catalog is kept, and rows of fragments, which never change.
    """

    context: GraphContext
    format: StampFormat
    catalog: Catalog
    run_context: RunContext

    def under(self, run_context: RunContext) -> Self:
        """The same open graph as another run sees it; this one stays as it is. Pure."""
        return replace(self, run_context=run_context)

    def with_settings(self, settings: Settings) -> Self:
        """The same open graph under other settings, of the same run. Pure."""
        return self.under(replace(self.run_context, settings=settings))

    def with_run(self, run: Run) -> Self:
        """The same open graph, worked on by that run. Pure."""
        return self.under(replace(self.run_context, run=run))

    @property
    def settings(self) -> Settings:
        """The settings of the run; whether it is alone says `is_alone`."""
        return self.run_context.settings

    @property
    def run(self) -> Run:
        """The run that works on it, which stages tell of their units and ask whether to stop."""
        return self.run_context.run

    def is_alone(self) -> bool:
        """Whether nobody else publishes right now; ask each time, a fence may be lifted meanwhile. Reads the fence."""
        fence = self.run_context.fence
        if fence is not None and fence.is_up and not self.has_fence():
            fence.take_down()
            _LOG.warning("somebody removed the fence of %s; the run goes on beside writers, no longer alone", self.uri)
        return self.run_context.exclusive

    @property
    def uri(self) -> str:
        """The root as this tool opens it, never with a slash at its end: empty for a dataset directly below `/`."""
        return self.storage.root.rstrip("/")

    @property
    def target(self) -> str:
        """What another process opens to get exactly this."""
        return self.uri

    @property
    def addressed(self) -> tuple[str, ...]:
        """Keys of the tables that the address narrows it to; empty for all there are."""
        return ()

    @property
    def stamp(self) -> int:
        return self.format.stamp

    @property
    def storage(self) -> Storage:
        return self.context.storage

    @property
    def lance(self) -> LanceGateway:
        return self.context.lance

    def open_at(self, path: str, *, branch: str | None = None, version: int | None = None) -> Dataset:
        """The dataset at a path below the root, at its newest version unless one is given. Reads."""
        return self.context.open_at(path, branch=branch, version=version)

    def manifest(self, branch: str | None = None, version: int | None = None) -> Dataset:
        """The graph manifest of a branch, at its newest version unless one is given. Reads.

        Raises:
            UnsupportedStamp: a newer engine upgraded the graph since it was opened.
        """
        found = self.open_at(MANIFEST_DIR, branch=branch, version=version)
        if branch is None and version is None and (stamp := stamp_text(found)) != str(self.stamp):
            raise UnsupportedStamp(
                f"{self.uri} became a graph of internal schema v{stamp} while it was maintained as v{self.stamp}; "
                "what was published before stays; run again, which says what this graph needs"
            )
        return found

    def state(self, branch: str | None = None, version: int | None = None) -> BranchState:
        """What the branch publishes right now, or published at a version; raises `CorruptGraph`. Reads."""
        return self.decode(self.manifest(branch, version), branch)

    def decode(self, manifest: Dataset, branch: str | None, *, tables: Collection[str] | None = None) -> BranchState:
        """The state in an open graph manifest, of all tables or of some keys; raises `CorruptGraph`. Reads."""
        try:
            with lance_errors(f"read the graph manifest of {self.uri}"):
                rows = self.context.manifest_rows.of(manifest, branch)
        except LanceFailure as error:
            if lacks_rights(error):
                raise
            cure = "files of the graph are damaged or gone: restore it from a backup"
            if branch is not None:  # its files are found by the place that the graph had when it was made
                cure = f"`omnigraph-ops check` says what to do about branch {branch!r}"
            raise type(error)(f"{error}; if it stays like that, {cure}") from error
        # Decoding takes long, and whoever works on a table asks for it again and again.
        about = branch, None if tables is None else frozenset(tables)
        known = self.context.decoded.get(about)
        if known is None or known[0]() is not rows or known[1].manifest_version != manifest.version:
            read = rows if tables is None else self.format.about(rows, tables)
            known = weakref.ref(rows), self.format.decode(self.context, read, branch, manifest.version)
            self.context.decoded[about] = known
        return known[1]

    def published(self, table_key: str) -> TableEntry | None:
        """What main publishes right now of one table, None when it is not live. Reads."""
        return self.decode(self.manifest(), None, tables=(table_key,)).get(table_key)

    def state_of(self, table_key: str) -> BranchState:
        """What main publishes right now, as far as it is about one table. Reads."""
        return self.state()

    def published_at(self) -> float | None:
        """When the newest version of the graph was published, in seconds since the epoch. Reads."""
        return self.storage.stat(version_path(MANIFEST_DIR, self.manifest().version, None)).modified_at

    def upper_levels(self) -> Levels:
        """What is stored and may be judged, down to the folders of datasets. Reads."""
        return upper_levels(self.storage)

    def stored(self) -> Iterator[Stored]:
        """Everything that is stored and may be judged. Reads."""
        return walk(self.storage, self.upper_levels())

    def clones(self, table_paths: Collection[str]) -> Mapping[str, str]:
        """The datasets of these whose versions somebody else reads files of, with who does. Reads."""
        return {}

    def read_from_outside(self, table_path: str) -> str | None:
        """Why a dataset that is no part of this reads files of one that is, None when none does. Reads."""
        return None

    def is_gone(self, table_path: str) -> bool:
        """Whether a path that is not published was that of a table of this graph. Pure."""
        return is_table_path(table_path)

    def lance_branches(self) -> tuple[BranchRef, ...]:
        """Every Lance branch of the graph manifest, the schema-apply lock included. Reads."""
        return self.lance.branches(self.manifest())

    def branches(self) -> tuple[str, ...]:
        """The names of the graph's own branches, without main and without internal ones. Reads."""
        return tuple(b.name for b in self.lance_branches() if not is_schema_apply_lock(b.name))

    def blobs_kept_for(self, table_key: str) -> str | None:
        """A branch whose merges compare where the blobs of a table lie, None where a rewrite may move them. Reads.

        Engine 0.9 compares rows as text, and of a blob its description. After a rewrite on main each row with a blob
        counts as changed there, so a merge of a branch that updated or deleted one is refused. A branch that is made
        later starts from the rewritten table.
        """
        spec = self.catalog.get(table_key) if self.format.compares_blobs else None
        return next(iter(self.branches()), None) if spec is not None and spec.blob_columns else None

    def stored_branches(self, path: str) -> frozenset[str]:
        """The Lance branches of a dataset by the files that make them: in one listing, names only. Reads."""
        names = self.storage.list(f"{path}/_refs/branches")
        return frozenset(unquote(name.removesuffix(".json")) for name in names if name.endswith(".json"))

    def schema_apply_locks(self) -> tuple[BranchRef, ...]:
        """The schema-apply lock as it is now, anybody's, under every spelling of its name. Reads."""
        if not any(is_schema_apply_lock(name) for name in self.stored_branches(MANIFEST_DIR)):
            return ()  # this is asked many times per table, and Lance would open the manifest and every branch for it
        return tuple(ref for ref in self.lance_branches() if is_schema_apply_lock(ref.name))

    def is_locked(self) -> bool:
        """Whether a schema apply, or somebody else's fence, keeps writers away. Reads."""
        return any(not self.is_own_fence(lock) for lock in self.schema_apply_locks())

    def has_fence(self) -> bool:
        """Whether the fence of this run is there, also when its time is over. Reads."""
        return any(map(self.is_own_fence, self.schema_apply_locks()))

    def is_own_fence(self, lock: BranchRef) -> bool:
        """Whether a schema-apply lock is the fence of this run, up or about to be removed. Pure."""
        fence = self.run_context.fence
        return fence is not None and fence.identifier == lock.identifier

    def table_uri(self, entry: TableEntry) -> str:
        return self.storage.uri(entry.path)

    def open_head(self, entry: TableEntry) -> Dataset:
        """The Lance HEAD of a table's main chain; `CorruptGraph` for a version that lives elsewhere. Reads."""
        if entry.branch is not None:
            # Its version number says nothing about the main chain: nothing there may be moved or removed.
            raise CorruptGraph(
                f"table '{entry.table_key}' is published from its Lance branch {entry.branch!r}, not from its main "
                "chain; nothing was written; open the graph with omnigraph for its diagnosis"
            )
        return self.open_at(entry.path)

    def open_head_past_pin(self, entry: TableEntry, consequence: str) -> Dataset:
        """`open_head`; `CorruptGraph` also where it is behind the published version. Reads.

        Args:
            consequence: what the caller did not do, as in `nothing was written`.
        """
        head = self.open_head(entry)
        if head.version < entry.version:
            raise CorruptGraph(
                f"table '{entry.table_key}' Lance HEAD version {head.version} is behind manifest version "
                f"{entry.version}; {consequence}; restore the table from a backup"
            )
        return head

    def open_newest(self, entry: TableEntry) -> Dataset:
        """The newest version of the Lance branch that a table is published from. Reads."""
        return self.open_at(entry.path, branch=entry.branch)

    def open_pinned(self, entry: TableEntry) -> Dataset:
        """The table at exactly its published version and Lance branch. Reads."""
        return self.open_version(entry, entry.version)

    def open_version(self, entry: TableEntry, version: int) -> Dataset:
        """A version of the Lance branch that a table is published from. Reads."""
        return self.open_at(entry.path, branch=entry.branch, version=version)

    def half_staged(self) -> tuple[str, ...]:
        """Staging files of a schema apply that ended while it wrote them, if the engine would promote them. Reads."""
        staged = staging_files(self.storage) if self.format.promotes_half_staged else ()
        return staged if is_half_staged(staged) else ()

    def first_lost(self, needed: Mapping[str, int]) -> str | None:
        """The first of these files, by path, that is gone or shorter than so many bytes; None: none is. Reads."""
        sizes = stored_sizes(self.storage, needed)
        short = (path for path, size in sorted(needed.items()) if sizes.get(path, 0) < size)
        return next((path for path in short if not self._is_whole(path, needed[path])), None)

    def _is_whole(self, path: str, size: int) -> bool:
        """Whether a file that no listing has as a regular one is there: Lance follows links. Reads."""
        try:
            return self.storage.stat(path).size >= size
        except (FileNotFoundError, StorageError):
            return False

    def maintained(self, state: BranchState) -> tuple[TableEntry, ...]:
        """Live tables of main that the accepted catalog also declares, by key. Reads where the two disagree.

        Raises:
            TransientError: a schema apply is at work, or was since the graph was opened.
            CorruptGraph: they disagree, and no schema apply explains it.
        """
        try:
            self.format.check_catalog(self.catalog, state, self.uri)
        except CorruptGraph:
            self._refuse_moving_schema(state)
            raise
        return self.declared(state)

    def declared(self, state: BranchState) -> tuple[TableEntry, ...]:
        """Live tables that the catalog of this graph declares, by key, whatever else it declares. Pure."""
        declared = {t.table_key for t in self.catalog.tables}
        return tuple(e for e in state.entries if e.table_key in declared)

    def with_current_schema(self) -> Self:
        """The same graph with the schema that is accepted now; raises `ContractError`. Reads."""
        return replace(self, catalog=self.format.read_catalog(self.storage))

    def _refuse_moving_schema(self, state: BranchState) -> None:
        if staging_files(self.storage) or self.is_locked():
            raise TransientError(
                f"a schema apply of {self.uri} is in progress, or ended half way; nothing was written; "
                "run the same command again, or `omnigraph-ops check` when that says the same"
            )
        # The lock was looked for after both had been read, so what is read now is what the apply left.
        if (self.format.read_catalog(self.storage), self.state().identities) != (self.catalog, state.identities):
            raise TransientError(
                f"the schema of {self.uri} was changed since it was read; nothing was written; "
                "run the same command again"
            )


def select_entries(graph: Graph, state: BranchState, tables: Sequence[str]) -> tuple[TableEntry, ...]:
    """The maintained tables, or exactly those named; `UnknownTable` for a key that is not live. Pure."""
    entries = graph.maintained(state)
    known = {e.table_key for e in entries}
    unknown = [key for key in tables if key not in known]
    if unknown:
        raise unknown_table(graph.uri, unknown[0], known, "nothing was written")
    return tuple(e for e in entries if not tables or e.table_key in tables)


def spec_of(graph: Graph, entry: TableEntry) -> TableSpec:
    """The catalog's view of a maintained table. Pure."""
    spec = graph.catalog.get(entry.table_key)
    if spec is None:
        raise UnknownTable(f"{entry.table_key} is not in the accepted schema of {graph.uri}")
    return spec
