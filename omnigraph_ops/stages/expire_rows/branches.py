"""Branches of our own on which the engine deletes rows: made, written on in turn with others, dropped, swept."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tenacity import RetryError, Retrying, retry_if_exception_type, stop_after_attempt, wait_fixed

from omnigraph_ops.coordination.freezes import refuse_any_freeze
from omnigraph_ops.coordination.lease import LeaseKeeper, committer_turn
from omnigraph_ops.engine import EngineCli, EngineConflict, EngineFailure, EngineRecovery
from omnigraph_ops.errors import GraphFrozen, OpsError
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.layout import EXPIRY_BRANCH_PREFIX, new_ulid
from omnigraph_ops.graph.sidecars import engine_root
from omnigraph_ops.lance.gateway import DatasetMissing
from omnigraph_ops.progress import Progress
from omnigraph_ops.quantities import count
from omnigraph_ops.stages.expire_rows.statements import Load, Step
from omnigraph_ops.stages.recovery.empty_references import remove_references_of
from omnigraph_ops.stages.recovery.half_made import remove_half_made_of
from omnigraph_ops.stages.recovery.recover import withdraw_expiry

_MAIN = "main"
_DROPS = 5
_PAUSE_SECONDS = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpiryBranches:
    """The engine, as it deletes rows of one table."""

    graph: Graph
    engine: EngineCli
    root: str
    table_key: str
    progress: Progress

    @contextlib.contextmanager
    def turn(self) -> Iterator[LeaseKeeper]:
        """No unit of ours is armed while the engine writes: an open of the graph would finish it. Writes the lease.

        Nobody froze the graph by then either: a freeze is announced first, and takes its cut in a turn of its own.
        """
        with committer_turn(self.graph, f"expire rows of {self.table_key}") as keeper:
            self.refuse_frozen()
            yield keeper

    def refuse_frozen(self) -> None:
        """Raise `GraphFrozen` where the graph, or a table of it, is frozen. Reads."""
        try:
            refuse_any_freeze(self.graph)
        except GraphFrozen as error:
            raise GraphFrozen(f"this attempt deleted no row of {self.table_key}: {error}") from None

    @contextlib.contextmanager
    def branch(self, parent: str | None) -> Iterator[str]:
        """A fresh branch of another, of main where that is None; it goes in every outcome. Writes."""
        name = f"{EXPIRY_BRANCH_PREFIX}{new_ulid().lower()}"
        try:
            with self.turn():
                self.engine.create_branch(self.root, name, parent or _MAIN)
            yield name
        except (EngineFailure, DatasetMissing) as error:
            # Its process has ended, and nobody else writes on that branch. What it left would stop this run, where the
            # disk is full every open of the engine.
            with contextlib.suppress(OpsError):
                withdraw_expiry(self.graph, name)
                remove_references_of(self.graph, name)
                remove_half_made_of(self.graph, name)
            if isinstance(error, DatasetMissing) or ("Not found" in str(error) and name in str(error)):
                # Another engine process that opened the graph meanwhile took ours for dead, and undid its write.
                raise EngineConflict(f"{error}; another process undid what was deleted on {name}") from error
            raise
        finally:
            drop_branch(self.graph, self.engine, self.root, name, self.progress)

    def merge(self, name: str, target: str | None) -> None:
        """Merge a branch into another, into main where that is None, in the turn of the caller. Destroys rows there."""
        self.engine.merge(self.root, name, target or _MAIN)

    def tell(self, name: str, steps: Iterable[Step], rows: int) -> None:
        """Have the engine do these steps, which are about so many rows, on a branch. Destroys rows there."""
        done = 0
        for step in steps:
            with self.turn():
                if isinstance(step, Load):
                    self.engine.load(self.root, name, step.lines)
                else:
                    self.engine.mutate(self.root, name, step.text, step.params)
            done += step.rows
            if step.rows:
                self.progress(f"{self.table_key}: {done:,} of {count(rows, 'row')}")


def drop_branch(graph: Graph, engine: EngineCli, root: str, name: str, progress: Progress) -> None:
    """Delete a branch of ours; one that stays is swept by the next run, and never fails this one. Destroys."""
    again = Retrying(
        retry=retry_if_exception_type(OpsError),
        stop=stop_after_attempt(_DROPS),
        wait=wait_fixed(_PAUSE_SECONDS),
        after=lambda state: progress(f"branch {name} is still there: {state.outcome and state.outcome.exception()}"),
    )
    with contextlib.suppress(RetryError):
        again(_drop, graph, engine, root, name)


def _drop(graph: Graph, engine: EngineCli, root: str, name: str) -> None:
    if name in graph.branches():
        with committer_turn(graph, f"drop {name}"):
            try:
                engine.delete_branch(root, name)
            except EngineRecovery:
                # An engine that opened the graph took our write for dead, and both finished it in their own way: then
                # no open settles its sidecar any more ("its manifest delta differs"), and no engine writes.
                withdraw_expiry(graph, name)
                raise
    if name in graph.branches():
        raise EngineFailure("the engine deleted it without effect")


def sweep_branches(graph: Graph, engine: EngineCli, progress: Progress) -> None:
    """Delete what runs that were killed left behind; whoever calls this is alone. Destroys."""
    entries = graph.state().entries
    for name in graph.branches():
        if name.startswith(EXPIRY_BRANCH_PREFIX) and entries:
            drop_branch(graph, engine, engine_root(graph, entries[0]), name, progress)
