"""The effects of the units F (fold) and R (rewrite) on one table's HEAD. They never publish."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from omnigraph_ops.edges.lance_gateway import Dataset, LanceGateway
from omnigraph_ops.edges.lance_tables import (
    RewriteMetrics,
    build_index,
    commit_results,
    fold_index,
    plan_tasks,
)
from omnigraph_ops.models import TablePlan
from omnigraph_ops.optimize.executors import InProcessExecutor

Progress = Callable[[str], None]


@dataclass(slots=True)
class Effort:
    """What the units of one table did so far; mutable because units report as they go."""

    fragments_removed: int = 0
    fragments_added: int = 0
    folded: list[str] = field(default_factory=list)
    built: list[str] = field(default_factory=list)

    def add(self, metrics: RewriteMetrics) -> None:
        self.fragments_removed += metrics.fragments_removed
        self.fragments_added += metrics.fragments_added


def fold(lance: LanceGateway, dataset: Dataset, plan: TablePlan, effort: Effort, progress: Progress) -> None:
    """Unit F: strip auto-cleanup first, then one commit per index name, then missing indexes. Writes."""
    lance.strip_auto_cleanup(dataset)
    for index in plan.folds:
        progress(f"folding index {index.name}")
        fold_index(dataset, index.name, index.segments)
        effort.folded.append(index.name)
    for build in plan.builds:
        progress(f"building index {build.name}")
        build_index(dataset, build.column, build.index_type, build.name)
        effort.built.append(build.name)


def compact_here(dataset: Dataset, target_rows: int, effort: Effort, progress: Progress) -> None:
    """Unit R for a small table inside its one window: plan, execute and commit at the HEAD. Writes."""
    tasks = plan_tasks(dataset, target_rows)
    if not tasks:
        return
    progress(f"rewriting {sum(len(t.fragment_ids) for t in tasks)} fragments")
    results = list(InProcessExecutor().execute(dataset, tasks))
    effort.add(commit_results(dataset, results))
