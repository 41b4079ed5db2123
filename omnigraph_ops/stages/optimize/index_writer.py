"""Write the indexes of a table, each with the release of pylance that its plan names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.lance.errors import LanceFailure, lance_errors
from omnigraph_ops.lance.gateway import Dataset, LanceGateway
from omnigraph_ops.lance.text_index_process import begin, process_of
from omnigraph_ops.lance.text_indexer import COMMAND, home_of, is_installed
from omnigraph_ops.models import TablePlan
from omnigraph_ops.progress import Progress


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexWriter:
    """Text indexes in a process of an older pylance; only there does a word become the term that readers look up."""

    lance: LanceGateway
    home: Path

    @classmethod
    def of(cls, graph: Graph) -> IndexWriter:
        """The writer for a graph under its settings. Pure."""
        return cls(lance=graph.lance, home=home_of(graph.settings.text_indexers))

    def begin(self, plans: Iterable[TablePlan]) -> None:
        """Start the releases that these plans need, without waiting for them. Starts processes."""
        wanted = {fold.release for plan in plans for fold in plan.folds}
        wanted |= {build.release for plan in plans for build in plan.builds}
        for release in filter(None, wanted):
            if is_installed(self.home, release):
                begin(self.home / release)

    def fold_text(self, dataset: Dataset, release: str, name: str, segments: int, progress: Progress) -> None:
        """Fold a text index; at most one commit of the dataset, whose handle then is at its newest version. Writes.

        Raises:
            LanceFailure, CommitConflict: as when the dataset were folded in this process.
        """
        request = {"kind": "fold", "segments": segments}
        self._ask(dataset, release, f"fold index {name} of {dataset.uri}", name, request, progress)

    def build_text(self, dataset: Dataset, release: str, name: str, column: str, progress: Progress) -> None:
        """Build a text index anew with the engine's parameters; as `fold_text`. Writes."""
        request = {"kind": "build", "column": column}
        self._ask(dataset, release, f"build index {name} of {dataset.uri}", name, request, progress)

    def _ask(  # noqa: PLR0917 - one request
        self, dataset: Dataset, release: str, action: str, name: str, request: Mapping[str, object], progress: Progress
    ) -> None:
        if not is_installed(self.home, release):
            raise LanceFailure(
                f"cannot {action}: pylance {release} is not installed in {self.home}; no row was changed; "
                f"install it with `{COMMAND}`"
            )
        whole = {
            "uri": str(dataset.uri),
            "version": int(dataset.version),
            "storage_options": self.lance.storage_options,
            "name": name,
            **request,
        }
        process_of(self.home / release).ask(action, whole, progress)
        with lance_errors(f"open {dataset.uri}"):
            dataset.checkout_latest()  # type: ignore[no-untyped-call]
