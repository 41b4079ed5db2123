"""Carries a history out: what the engine does by hand through Lance, what this tool does through its own verbs."""

from __future__ import annotations

import os
import shutil
import time
from collections import Counter
from functools import singledispatchmethod
from pathlib import Path

import lance

from omnigraph_ops.config.settings import Settings
from omnigraph_ops.coordination.holds import HeldVersion, HoldKind, place_hold, release_hold
from omnigraph_ops.demo import DemoSpec
from omnigraph_ops.demo import tables as demo_tables
from omnigraph_ops.demo.contract import DemoTable
from omnigraph_ops.demo.publisher import Publisher3, Publisher6, open_manifest, table_version
from omnigraph_ops.demo.spec import demo_types
from omnigraph_ops.errors import InvalidInput, OpsError
from omnigraph_ops.graph import Graph, open_graph
from omnigraph_ops.graph.layout import COMMITS_DIR, MANIFEST_DIR
from omnigraph_ops.lance.tables import execute_task, plan_tasks
from omnigraph_ops.stages.optimize.run import optimize_all, optimize_table
from omnigraph_ops.stages.repair.run import apply_repair, preview_repair
from tests.property import history as steps
from tests.property.model import FileStamps, Model, Pins, Place, files_below
from tests.support.templates import Templates
from tests.support.writers import copies, delete_first

SPEC = {"loads": 2, "rows": 3, "node_types": 1, "index_after_load": 0, "vectors": False}
_EIGHT_DAYS = 8 * 86_400
_SETTINGS = Settings(exclusive=True, lease_wait_seconds=5)


class World:
    """A small graph of one stamp, the model of what has to stay, and every step."""

    def __init__(self, templates: Templates, stamp: int, folder: Path) -> None:
        self.folder, self.stamp = folder, stamp
        self.seen: Counter[str] = Counter()
        """What this history reached, for the test that histories reach anything."""
        spec = DemoSpec(stamp=stamp, **SPEC)
        templates.copy(spec, folder / "home.omni")
        self.home = self.spelled = str(folder / "home.omni")
        self._left_behind: tuple[str, FileStamps] | None = None
        self._count = 0
        self.model = Model(home=self.home)
        state = self.graph().state()
        types = {t.table_key: t for t in demo_types(spec)}
        self.tables = {
            e.table_key: DemoTable(type=types[e.table_key], path=e.path, identity=e.identity) for e in state.entries
        }
        pins = {e.table_key: Place(e.path, None, e.version) for e in state.entries}
        self.model.publish(None, open_manifest(self.home, None).version, pins)

    def graph(self) -> Graph:
        """The graph, opened the way that the last `Respell` said. Reads."""
        return open_graph(self.spelled, _SETTINGS)

    def check(self) -> None:
        """Everything wanted opens and scans, and what was copied away from is as it was left. Reads."""
        self.model.check()
        if self._left_behind is not None:
            root, stamps = self._left_behind
            assert files_below(root) == stamps, "the graph that was copied was touched through its copy"

    def fresh_name(self, prefix: str) -> str:
        self._count += 1
        return f"{prefix}{self._count}"

    def head(self, key: str) -> lance.LanceDataset:
        """The main chain of a table at its HEAD, as it is spelled now. Reads."""
        return lance.dataset(os.path.join(self.spelled, self.tables[key].path))

    def is_drifted(self, key: str) -> bool:
        return bool(self.head(key).version != self.model.pins[None][key].version)

    @singledispatchmethod
    def take(self, step: steps.Step) -> None:
        """Carry one step out. Writes."""
        raise NotImplementedError(step)

    # -- the engine's writes -------------------------------------------------------------------------

    @take.register
    def _(self, step: steps.Load) -> None:
        self._write(step.table, copies(self.fresh_name("row-"), step.rows))

    @take.register
    def _(self, step: steps.Delete) -> None:
        if step.rows:
            self._write(step.table, delete_first(step.rows) if self.head(step.table).count_rows() else _delete_nothing)
        else:
            self._write(step.table, _delete_nothing)

    @take.register
    def _(self, step: steps.Update) -> None:
        self._write(step.table, lambda dataset: demo_tables.merge(dataset, dataset.to_table(limit=1)))

    def _write(self, key: str, change: object) -> None:
        if not self.is_drifted(key):
            change(self.head(key))
            self.publish(None, key, None)

    def publish(self, branch: str | None, key: str, fork: str | None) -> None:
        """Publish the HEAD of a table, or of its fork, on a graph branch. Writes."""
        table, dataset = self.tables[key], self.head(key)
        dataset = dataset if fork is None else dataset.checkout_version((fork, None))
        publisher = (Publisher3 if self.stamp == 3 else Publisher6)(root=self.spelled)
        publisher.publish((table_version(table, dataset, fork),), branch)
        pins = self.model.pins[branch] | {key: Place(table.path, fork, dataset.version)}
        self.model.publish(branch, open_manifest(self.home, branch).version, pins)

    # -- branches ------------------------------------------------------------------------------------

    @take.register
    def _(self, step: steps.LazyBranch) -> None:
        if step.name in self.model.pins or any(_is_in_the_way(d, step.name) for d in self._internal()):
            return
        source = step.source if step.source in self.model.pins else None
        published = self.model.published[source]
        version, pins = published[-1 - step.back % len(published)]
        if not all(self.model.is_readable(place) for place in pins.values()):
            return  # collected long ago: the engine would refuse, too
        self.branch_manifest(step.name, source, version)
        self.model.publish(step.name, open_manifest(self.home, step.name).version, pins)

    def branch_manifest(self, name: str, source: str | None, version: int) -> None:
        """Branch the graph manifest at one of its versions, and on stamp 3 the commit graph. Writes."""
        manifest, *commits = self._internal()
        manifest.checkout_version((source, version)).create_branch(name)
        for dataset in commits:
            if name not in dataset.branches.list():  # a crash may have left it; the engine goes on with it
                dataset.checkout_version((source, None)).create_branch(name)

    def _internal(self) -> list[lance.LanceDataset]:
        """The graph manifest, and on stamp 3 the commit graph: what is branched with the graph. Reads."""
        names = (MANIFEST_DIR, COMMITS_DIR) if self.stamp == 3 else (MANIFEST_DIR,)
        return [lance.dataset(os.path.join(self.spelled, name)) for name in names]

    @take.register
    def _(self, step: steps.WriteBranch) -> None:
        self.take(steps.LazyBranch(step.name))
        if step.name not in self.model.pins:
            return
        place, head = self.model.pins[step.name][step.table], self.head(step.table)
        if place.branch == step.name:
            fork = head.checkout_version((step.name, None))
        elif step.name in head.branches.list() or _is_in_the_way(head, step.name):
            return  # an orphan of that name
        else:
            fork = head.checkout_version((place.branch, place.version)).create_branch(step.name)
        copies(self.fresh_name("row-"), 1)(fork)
        self.publish(step.name, step.table, step.name)
        self.seen["fork of a fork"] += place.branch not in {None, step.name}

    @take.register
    def _(self, step: steps.StrayFork) -> None:
        head = self.head(step.table)
        if step.name in head.branches.list() or _is_in_the_way(head, step.name):
            return
        place = self.model.pins.get(step.name, self.model.pins[None])[step.table]
        fork = head.checkout_version((place.branch, place.version)).create_branch(step.name)
        copies(self.fresh_name("row-"), 1)(fork)

    @take.register
    def _(self, step: steps.DeleteBranch) -> None:
        manifest, *commits = self._internal()
        if step.name not in self.model.pins or not _deleted(manifest, step.name):
            return
        self.model.forget_branch(step.name)
        for table in self.tables.values():
            # The engine does this as well as it can: what still has dependents stays behind.
            if not step.orphans and not self.model.wanted(table.path, step.name):
                self.delete_fork(table, step.name)
        for dataset in commits if not step.orphans else ():
            _deleted(dataset, step.name)

    def delete_fork(self, table: DemoTable, name: str) -> None:
        head = self.head(table.key)
        if name in head.branches.list() and _deleted(head, name):
            self.model.forget_fork(table.path, name)

    # -- tags and holds ------------------------------------------------------------------------------

    @take.register
    def _(self, step: steps.Tag) -> None:
        name, place = self.fresh_name("tag-"), self.pick(step.table, step.back, step.on)
        lance.dataset(os.path.join(self.spelled, place.path)).tags.create(name, (place.branch, place.version))
        self.model.tag(name, place)

    @take.register
    def _(self, step: steps.Untag) -> None:
        if self.model.tags:
            name = next(iter(self.model.tags))
            place = self.model.tags.pop(name)
            lance.dataset(os.path.join(self.spelled, place.path)).tags.delete(name)

    @take.register
    def _(self, step: steps.Hold) -> None:
        place = self.pick(step.table, step.back, step.on)
        held = HeldVersion(table_path=place.path, branch=place.branch, version=place.version)
        hold = place_hold(
            self.graph().storage,
            (held,),
            kind=HoldKind.PLAN if step.running else HoldKind.FREEZE,
            reason="a step of a history",
            ttl_seconds=3600,
            bound_to_process=step.running,
        )
        self.model.hold(hold.hold_id, place)

    @take.register
    def _(self, step: steps.Release) -> None:
        if self.model.holds:
            hold_id = next(iter(self.model.holds))
            del self.model.holds[hold_id]
            release_hold(self.graph().storage, hold_id)

    def pick(self, key: str, back: int, on: str | None) -> Place:
        """A version that exists, `back` from the newest; of the fork `on` if the table has that one. Reads."""
        dataset = self.head(key)
        branch = on if on in dataset.branches.list() else None
        dataset = dataset if branch is None else dataset.checkout_version((branch, None))
        versions = sorted(v["version"] for v in dataset.versions())
        return Place(self.tables[key].path, branch, versions[-1 - back % len(versions)])

    # -- accidents -----------------------------------------------------------------------------------

    @take.register
    def _(self, step: steps.Drift) -> None:
        try:
            demo_tables.move_past_pin(self.head(step.table), step.table, step.kind)
        except InvalidInput:
            return  # nothing to compact

    @take.register
    def _(self, step: steps.Respell) -> None:
        link = self.folder / "link.omni"
        if step.how == "copy" and self._left_behind is None:
            self._left_behind = (self.home, files_below(self.home))
            copy = str(self.folder / "copy.omni")
            shutil.copytree(self.home, copy)
            link.unlink(missing_ok=True)
            self.home = self.model.home = copy
        if step.how == "link" and not link.exists():
            link.symlink_to(self.home)
        self.spelled = str(link) if step.how == "link" else self.home

    @take.register
    def _(self, step: steps.KilledWrite) -> None:
        before = files_below(self.home)
        head = self.head(step.table)
        for task in plan_tasks(head, _SETTINGS.target_rows_per_fragment):
            execute_task(head, task.payload)
        if step.aged:
            _age(self.home, set(files_below(self.home)) - set(before))

    @take.register
    def _(self, step: steps.Age) -> None:
        _age(self.home, set(files_below(self.home)))

    # -- this tool -----------------------------------------------------------------------------------

    @take.register
    def _(self, step: steps.Compact) -> None:
        try:
            if step.table is None:
                optimize_all(self.graph())
            else:
                optimize_table(self.graph(), step.table)
        except OpsError:
            self.seen["optimize refused"] += 1
        self._reread(same_rows=frozenset(self.tables))

    @take.register
    def _(self, step: steps.Repair) -> None:
        try:
            report = apply_repair(self.graph(), preview_repair(self.graph()), force=step.force)
        except OpsError:
            self.seen["repair refused"] += 1
            return
        self._reread(same_rows=frozenset(r.table_key for r in report.tables if r.action != "forced"))

    def _reread(self, same_rows: frozenset[str]) -> None:
        """Take over what our own verbs published on main; rows may differ only where a person forced it. Reads."""
        pins: Pins = {e.table_key: Place(e.path, e.branch, e.version) for e in self.graph().state().entries}
        before = self.model.pins[None]
        if pins == before:
            return
        self.model.publish(None, open_manifest(self.home, None).version, pins)
        for key in same_rows:
            assert self.model.digests[pins[key]] == self.model.digests[before[key]], f"the rows of {key} changed"


def _delete_nothing(dataset: lance.LanceDataset) -> None:
    dataset.delete("id = 'no such row'")


def _is_in_the_way(dataset: lance.LanceDataset, branch: str) -> bool:
    """Whether a dead branch left files under that name, which Lance does where one is nested in it. Reads.

    Lance cannot make a branch of that name again until they are gone.
    """
    return branch not in dataset.branches.list() and os.path.exists(
        os.path.join(dataset.uri, "tree", branch, "_versions")
    )


def _deleted(dataset: lance.LanceDataset, branch: str) -> bool:
    """Delete a Lance branch; False where Lance refuses because something refers to it. Writes."""
    try:
        dataset.branches.delete(branch)
    except (OSError, ValueError):
        return False
    return True


def _age(root: str, names: set[str]) -> None:
    then = time.time() - _EIGHT_DAYS
    for name in names:
        os.utime(os.path.join(root, name), (then, then))
