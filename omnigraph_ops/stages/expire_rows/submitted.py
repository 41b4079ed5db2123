"""A delete whose deletion files are written by tasks of the job `expire`, and committed here.

A task notes every deletion file that it wrote in the graph and returns its own name. So only what accepted tasks noted
is committed, and the files of a lost task, or of one that ran twice, are removed by their names.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Container
from dataclasses import dataclass

from omnigraph_ops.coordination.state import RESULTS_DIR, Records
from omnigraph_ops.errors import OpsError, StorageError
from omnigraph_ops.graph.layout import new_ulid
from omnigraph_ops.lance.gateway import CommitConflict, Dataset
from omnigraph_ops.lance.rows import Clock, FragmentDelete, commit_deletes
from omnigraph_ops.stages.stage import Submit
from omnigraph_ops.storage.inventory import remove_files
from omnigraph_ops.storage.store import Storage

NOTES = Records(FragmentDelete)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskDone:
    """What one task of the job deleted."""

    attempt: str
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletesDone:
    """What the job `expire` returns."""

    tasks: tuple[TaskDone, ...]


def note_path(folder: str, attempt: str, fragment_id: int) -> str:
    """Where a task notes what it did to a fragment, relative to the graph. Pure."""
    return f"{folder}/{attempt}.{fragment_id}.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmittedDelete:
    """Deletes on Spark. As `Delete`."""

    submit: Submit
    root: str
    """Of the graph."""
    storage: Storage
    check: Callable[[], None]
    """Of the run."""

    def __call__(self, dataset: Dataset, clock: Clock, cut: int, check: Callable[[], None]) -> int:
        """Submit, commit what the tasks wrote, and remove what counts for nothing. Destroys rows."""
        folder, predicate, kept = f"{RESULTS_DIR}/{new_ulid()}", clock.below(cut), set[str | None]()
        words = ("--graph", self.root, "--dataset", str(dataset.uri), "--version", str(int(dataset.version)))
        try:
            done = self.submit("expire", (*words, "--predicate", predicate, "--notes", folder), DeletesDone, self.check)
            deletes = self._accepted(folder, done)
            check()
            # From here on it may have landed, whatever is raised.
            kept = {delete.file for delete in deletes}
            commit_deletes(dataset, deletes, predicate)
        except CommitConflict:
            kept.clear()
            raise
        finally:
            with contextlib.suppress(OpsError):
                self._sweep(str(dataset.uri), folder, kept)
        return sum(delete.rows for delete in deletes)

    def _accepted(self, folder: str, done: DeletesDone) -> list[FragmentDelete]:
        """What the accepted tasks noted; `StorageError` where a note is missing. Reads."""
        accepted = {task.attempt for task in done.tasks}
        notes = NOTES.all(self.storage, folder)
        deletes = [note for path, note in notes if path.removeprefix(f"{folder}/").partition(".")[0] in accepted]
        if sum(delete.rows for delete in deletes) != sum(task.rows for task in done.tasks):
            raise StorageError(f"{folder} does not have all that the tasks noted there; nothing was deleted")
        return deletes

    def _sweep(self, uri: str, folder: str, kept: Container[str | None]) -> None:
        """Remove the notes, and the deletion files that are in no version. Destroys files."""
        table = uri.removeprefix(f"{self.root}/")
        files = [note.file for _, note in NOTES.all(self.storage, folder) if note.file is not None]
        remove_files(self.storage, [f"{table}/{file}" for file in files if file not in kept])
        self.storage.delete_tree(folder)
