"""What an unfinished backup has already, with the checksums: one small file per batch, for whoever continues it."""

from __future__ import annotations

import threading
import time

from omnigraph_ops.coordination.records import Records
from omnigraph_ops.graph.ids import new_ulid
from omnigraph_ops.models.backup import JournalledFile, JournalledFiles
from omnigraph_ops.outcomes.backup_places import JOURNAL
from omnigraph_ops.storage.store import Storage

_BATCH_FILES = 200
_BATCH_SECONDS = 5.0
_BATCHES = Records(JournalledFiles)


class CopyJournal:
    """Collects files as they are copied and writes them down every so often."""

    def __init__(self, destination: Storage, backup_id: str, freeze_id: str) -> None:
        self._destination, self._folder, self._freeze_id = destination, f"{backup_id}/{JOURNAL}", freeze_id
        self._batch: list[JournalledFile] = []
        self._written_at = time.monotonic()
        self._lock = threading.Lock()

    def note(self, file: JournalledFile) -> None:
        """A file is there under its final name. Writes now and then."""
        with self._lock:
            self._batch.append(file)
            due = len(self._batch) >= _BATCH_FILES or time.monotonic() - self._written_at >= _BATCH_SECONDS
            if due:
                self._flush()

    def close(self) -> None:
        """Write down the rest. Writes."""
        with self._lock:
            self._flush()

    def _flush(self) -> None:
        if self._batch:
            batch = JournalledFiles(freeze_id=self._freeze_id, files=tuple(self._batch))
            _BATCHES.write(self._destination, f"{self._folder}/{new_ulid()}.json", batch)
        self._batch, self._written_at = [], time.monotonic()


def read_journal(destination: Storage, backup_id: str) -> tuple[JournalledFiles, ...]:
    """Everything noted so far, oldest first; a damaged part says nothing. Reads."""
    return tuple(batch for _, batch in _BATCHES.all(destination, f"{backup_id}/{JOURNAL}"))
