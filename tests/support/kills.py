"""Kill the tool at one mutating call: before it, half way through it, or right after it.

Everything that changes a graph is wrapped: the small files (`Storage`) and every Lance call that can
make a version. After the kill all of them are inert, so that no `finally` or `except` of the code under
test can tidy up: what is on disk is what a dead process leaves behind.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import lance
from lance.dataset import DatasetOptimizer, MergeInsertBuilder, Tags

from omnigraph_ops.coordination import rewrites, window
from omnigraph_ops.engine import EngineCli
from omnigraph_ops.graph import Graph
from omnigraph_ops.graph.layout import is_ulid
from omnigraph_ops.lance import commits as lance_commits
from omnigraph_ops.lance import tables as lance_tables
from omnigraph_ops.lance.text_indexer import TextIndexProcess
from omnigraph_ops.stages.optimize import index_work
from omnigraph_ops.stages.orphans import apply
from omnigraph_ops.storage import inventory
from omnigraph_ops.storage.store import Storage
from tests.support.edges import commits_around, tasks_around
from tests.support.leases import bury_holders, is_lease
from tests.support.places import Folder, State

BEFORE, AFTER = "before", "after"
HALF_WRITTEN = "half-written"
"""A small file exists under its temporary name only; of several files, some are done."""
NO_VERSION = "no-version"
"""A Lance commit wrote its files and transaction, but no manifest."""
ONE_VERSION_SHORT = "one-version-short"
"""A Lance commit of two versions ends after the first: ReserveFragments without its Rewrite."""
STALE_HINT = "stale-hint"
"""A Lance commit is complete, the version hint beside it still names the old version."""

# All public methods of a dataset that commit. Any that the tool starts to use shows up as a crash point.
_DATASET_COMMITS = (
    "add_columns",
    "alter_columns",
    "cleanup_old_versions",
    "commit_existing_index_segments",
    "create_branch",
    "create_index",
    "create_scalar_index",
    "delete",
    "delete_config_keys",
    "drop_columns",
    "drop_index",
    "insert",
    "merge",
    "replace_field_metadata",
    "replace_schema_metadata",
    "restore",
    "update",
    "update_config",
    "update_field_metadata",
    "update_metadata",
    "update_schema_metadata",
)


_HINT = "latest_version_hint.json"
_UNFINISHED: list[object] = []
"""Contexts of killed runs: were they collected as garbage, they would tidy up behind the dead."""


class Killed(BaseException):
    """The process is gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CrashPoint:
    """One mutating call and the ways in which a process can die at it."""

    index: int
    call: str
    target: str
    modes: tuple[str, ...]

    def __str__(self) -> str:
        return f"#{self.index} {self.call} {self.target}"


@dataclass(slots=True)
class Killer:
    """Records every mutating call below `root`, and dies at the one that `when` names."""

    root: Path
    when: Callable[[CrashPoint], bool] = lambda _point: False
    mode: str = BEFORE
    points: list[CrashPoint] = field(default_factory=list)
    dead: bool = False
    on_quiet: Callable[[str], None] | None = None
    """Called right before and right after each recorded call, with its name."""
    _busy: bool = False
    """Inside of a recorded call, in whatever thread: what that call calls is part of it."""

    def small_file(self, call: str, path: str, act: Callable[[], Any], half: Callable[[], Any] | None) -> Any:
        """A call of `Storage`; `half` leaves what a kill in its middle leaves."""
        modes = (BEFORE, AFTER) if half is None else (BEFORE, HALF_WRITTEN, AFTER)
        return self._call(call, path, modes, act, lambda: half() if half else None)

    def lance_commit(self, call: str, uri: str, act: Callable[[], Any], versions: int = 1) -> Any:
        """A call that makes `versions` Lance versions of the dataset at `uri`."""
        short = (ONE_VERSION_SHORT,) if versions > 1 else ()
        folder = Path(uri.removeprefix("file://"))
        modes = (BEFORE, NO_VERSION, *short, STALE_HINT, AFTER)
        return self._call(call, shorten(folder, self.root), modes, act, lambda: self._torn_commit(folder, act))

    def owns(self, uri: str) -> bool:
        """Whether a dataset is of the graph; commits are drafted in a scratch folder."""
        return Path(uri.partition("://")[2] or uri).is_relative_to(self.root)

    def task(self, uri: str, act: Callable[[], Any]) -> Any:
        """A rewrite that writes data files and makes no version."""
        folder = Path(uri.removeprefix("file://"))
        return self._call("execute", shorten(folder, self.root), (BEFORE, AFTER), act, lambda: None)

    def _call(self, call: str, target: str, modes: tuple[str, ...], act: Callable[[], Any], half: Any) -> Any:
        if threading.current_thread().name == "lease":
            return None if self.dead else act()
        if self._busy:
            return act()
        if self.dead:
            raise Killed
        point = CrashPoint(index=len(self.points), call=call, target=target, modes=modes)
        self.points.append(point)
        self._tell(f"before {point}")
        self._busy = True
        try:
            result = self._act(point, act, half)
        finally:
            self._busy = False
        self._tell(f"after {point}")
        return result

    def _act(self, point: CrashPoint, act: Callable[[], Any], half: Callable[[], Any]) -> Any:
        if not self.when(point):
            return act()
        assert self.mode in point.modes, f"{self.mode} does not apply to {point}"
        self.dead = True
        if self.mode == AFTER:
            act()
        elif self.mode != BEFORE:
            half()
        raise Killed

    def _tell(self, moment: str) -> None:
        if self.on_quiet is not None:
            self.on_quiet(moment)

    def _torn_commit(self, folder: Path, act: Callable[[], Any]) -> None:
        """Commit, then take back from `_versions/` what the process did not live to write."""
        place = Folder(folder)
        before = place.look()
        act()
        place.put(torn(before, place.look(), self.mode))


def torn(before: State, after: State, mode: str) -> State:
    """What a Lance commit leaves without its last versions, or without the hint at them. Pure."""
    manifests = {n for n in after.keys() - before.keys() if n.endswith(".manifest") and "_versions/" in n}
    # V2 names count down, so the newest version sorts first.
    fresh = sorted(manifests, key=lambda name: name.rpartition("/")[2])
    lost = set(fresh[: {NO_VERSION: len(fresh), ONE_VERSION_SHORT: 1}.get(mode, 0)])
    state = {name: value for name, value in after.items() if name not in lost}
    for folder in {name.rpartition("/")[0] for name in fresh}:
        hint = f"{folder}/{_HINT}"
        state.pop(hint, None)
        if hint in before:
            state[hint] = before[hint]
        if not any(name.startswith(f"{folder}/") for name in state):
            state.pop(folder, None)
    return state


@contextmanager
def killing(killer: Killer) -> Iterator[Killer]:
    """Wrap every mutating call of the tool for the block."""
    methods = _storage_methods(killer)
    with (
        # Alone, because `patch.multiple` has a parameter of that name.
        mock.patch.object(Storage, "create", methods.pop("create")),
        mock.patch.multiple(Storage, **methods),
        mock.patch.multiple(lance.LanceDataset, **_dataset_methods(killer)),
        mock.patch.object(lance.LanceDataset, "commit", staticmethod(_commit(killer))),
        mock.patch.object(lance.LanceDataset, "shallow_clone", _clone(killer)),
        mock.patch.object(Storage, "prepared", _prepared(killer)),
        mock.patch.object(index_work, "move_files", _files(killer, "move", inventory.move_files)),
        mock.patch.object(window, "remove_files", _files(killer, "remove", inventory.remove_files)),
        mock.patch.object(rewrites, "remove_files", _files(killer, "remove", inventory.remove_files)),
        mock.patch.object(window, "remove_folder", _remove_folder(killer)),
        mock.patch.object(apply, "remove_files", _files(killer, "remove", inventory.remove_files)),
        mock.patch.object(apply, "remove_folder", _remove_folder(killer)),
        mock.patch.object(lance_commits, "write_fragments", _write_fragments(killer)),
        mock.patch.object(lance, "write_dataset", _write_dataset(killer)),
        mock.patch.object(DatasetOptimizer, "optimize_indices", _optimize_indices(killer)),
        mock.patch.object(TextIndexProcess, "ask", _text_index(killer)),
        mock.patch.object(EngineCli, "_run", _engine(killer)),
        mock.patch.object(MergeInsertBuilder, "execute", _merge(killer)),
        _compaction(killer),
    ):
        yield killer


@contextmanager
def killing_tags(killer: Killer) -> Iterator[None]:
    """The same, and tags are mutating calls as well."""
    create, delete = Tags.create, Tags.delete

    def guarded_create(tags: Tags, name: str, *version: Any) -> None:
        killer.small_file("tag", name[-2:], lambda: create(tags, name, *version), None)

    def guarded_delete(tags: Tags, name: str) -> None:
        killer.small_file("untag", name[-2:], lambda: delete(tags, name), None)

    with (
        killing(killer),
        mock.patch.object(Tags, "create", guarded_create),
        mock.patch.object(Tags, "delete", guarded_delete),
    ):
        yield


def kill_at(graph: Graph, run: Callable[[Graph], object], call: str, mode: str) -> None:
    """Leave what a run leaves that dies at its first call of that name (and target), its process gone. Writes.

    `run` works on one table: of two that run side by side, a call goes by unseen while the other one makes a call.
    """
    killer = Killer(root=Path(graph.uri), when=lambda p: f"{p.call} {p.target}".startswith(call), mode=mode)
    with killing(killer), suppress(Killed):
        run(graph)
    assert killer.dead, f"{call} never happened"
    bury_holders(graph.storage)


def _storage_methods(killer: Killer) -> dict[str, Any]:
    write, create, delete, tree = Storage.write, Storage.create, Storage.delete, Storage.delete_tree

    def guarded_write(self: Storage, path: str, data: bytes) -> None:
        half = lambda: self._temporary(path, data)  # noqa: E731
        killer.small_file("write", _stable(path), lambda: write(self, path, data), half)

    def guarded_create(self: Storage, path: str, data: bytes) -> bool:
        half = lambda: self._temporary(path, data)  # noqa: E731
        made: bool = killer.small_file("create", path, lambda: create(self, path, data), half)
        return made

    def guarded_delete(self: Storage, path: str) -> None:
        killer.small_file("delete", _stable(path), lambda: delete(self, path), None)

    def guarded_tree(self: Storage, folder: str) -> None:
        killer.small_file("delete_tree", _stable(folder), lambda: tree(self, folder), None)

    return {
        "write": guarded_write,
        "create": guarded_create,
        "delete": guarded_delete,
        "delete_tree": guarded_tree,
    }


def _dataset_methods(killer: Killer) -> dict[str, Any]:
    return {name: _dataset_method(killer, name) for name in _DATASET_COMMITS}


def _dataset_method(killer: Killer, name: str) -> Any:
    original = getattr(lance.LanceDataset, name)

    def guarded(self: Any, *args: Any, **kwargs: Any) -> Any:
        return killer.lance_commit(name, self.uri, lambda: original(self, *args, **kwargs))

    return guarded


def _commit(killer: Killer) -> Any:
    original = lance.LanceDataset.commit

    def guarded(dataset: Any, transaction: Any, **kwargs: Any) -> Any:
        uri = dataset if isinstance(dataset, str) else dataset.uri
        if not killer.owns(uri):
            return original(dataset, transaction, **kwargs)
        call = f"commit {type(getattr(transaction, 'operation', transaction)).__name__}"
        return killer.lance_commit(call, uri, lambda: original(dataset, transaction, **kwargs))

    return guarded


def _clone(killer: Killer) -> Any:
    original = lance.LanceDataset.shallow_clone

    def guarded(self: Any, target: str, *args: Any, **kwargs: Any) -> Any:
        return killer.lance_commit("shallow_clone", target, lambda: original(self, target, *args, **kwargs))

    return guarded


def _files(killer: Killer, call: str, original: Any) -> Any:
    """Files that are moved or removed together, in any order: some of them were when the process died half way."""

    def guarded(storage: Storage, files: Any, **kwargs: Any) -> Any:
        half = lambda: original(storage, files[: (len(files) + 1) // 2], **kwargs)  # noqa: E731
        return killer.small_file(call, "files", lambda: original(storage, files, **kwargs), half)

    return guarded


def _remove_folder(killer: Killer) -> Any:
    original = inventory.remove_folder

    def guarded(storage: Storage, folder: str) -> Any:
        return killer.small_file("remove_folder", _stable(folder), lambda: original(storage, folder), None)

    return guarded


def _prepared(killer: Killer) -> Any:
    """The put of a manifest: the hidden file, the step that makes the version, and the hidden file's end."""
    original = Storage.prepared

    @contextmanager
    def guarded(self: Storage, path: str, data: bytes) -> Iterator[Callable[[], Any]]:
        manager: AbstractContextManager[Callable[[], bool]] = original(self, path, data)
        _UNFINISHED.append(manager)
        version = path.rpartition("/")[0]
        step = killer.small_file("prepare", version, manager.__enter__, None)
        try:
            yield lambda: killer.small_file("put", version, step, None)
        finally:
            killer.small_file("tidy", version, lambda: manager.__exit__(None, None, None), None)

    return guarded


def _write_fragments(killer: Killer) -> Any:
    original = lance.fragment.write_fragments

    def guarded(rows: Any, target: Any, *args: Any, **kwargs: Any) -> Any:
        act = lambda: original(rows, target, *args, **kwargs)  # noqa: E731
        return killer.small_file("write_fragments", shorten(Path(target.uri), killer.root), act, None)

    return guarded


def _write_dataset(killer: Killer) -> Any:
    original = lance.write_dataset

    def guarded(table: Any, target: Any, *args: Any, **kwargs: Any) -> Any:
        uri = target if isinstance(target, str) else target.uri
        call = f"write_dataset {kwargs.get('mode', 'create')}"
        return killer.lance_commit(call, uri, lambda: original(table, target, *args, **kwargs))

    return guarded


def _optimize_indices(killer: Killer) -> Any:
    original = DatasetOptimizer.optimize_indices

    def guarded(self: Any, **kwargs: Any) -> Any:
        call = f"optimize_indices {','.join(kwargs.get('index_names') or ())}"
        return killer.lance_commit(call, self._dataset.uri, lambda: original(self, **kwargs))

    return guarded


def _text_index(killer: Killer) -> Any:
    original = TextIndexProcess.ask

    def guarded(self: Any, action: str, request: Any, progress: Any) -> Any:
        call = f"text index {request['kind']} {request['name']}"
        return killer.lance_commit(call, request["uri"], lambda: original(self, action, request, progress))

    return guarded


def _engine(killer: Killer) -> Any:
    original = EngineCli._run

    def guarded(self: Any, *arguments: str) -> Any:
        act = lambda: original(self, *arguments)  # noqa: E731
        return killer.small_file(f"engine {' '.join(arguments[:2])}", "the graph", act, None)

    return guarded


def _merge(killer: Killer) -> Any:
    original = MergeInsertBuilder.execute

    def guarded(self: Any, *args: Any, **kwargs: Any) -> Any:
        return killer.lance_commit("merge_insert", str(killer.root / "__manifest"), lambda: original(self, *args))

    return guarded


@contextmanager
def _compaction(killer: Killer) -> Iterator[None]:
    commits = commits_around(lambda uri, act: killer.lance_commit("commit", uri, act, versions=2))
    tasks = tasks_around(killer.task)
    with mock.patch.multiple(lance_tables, _Compaction=commits, _CompactionTask=tasks):
        yield


def shorten(folder: Path, root: Path) -> str:
    if not folder.is_relative_to(root):
        return str(folder)
    parts = folder.relative_to(root).parts
    return "/".join("*.lance" if is_ulid(part.removesuffix(".lance")) else part for part in parts)


def _stable(path: str) -> str:
    """A path without its operation and rewrite ids, so that two runs name their points alike."""
    folder = "/".join("*" if is_ulid(part) else part for part in path.split("/")).rpartition("/")[0]
    return f"{folder}/lease" if is_lease(path) else f"{folder}/*"
