"""What somebody asks of a backup."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from omnigraph_ops.requests import Bytes, Option, Request

Pace = Annotated[
    Annotated[Bytes, Field(ge=1)] | None,
    Field(description="Go no faster than this, as in `50MB`."),
    Option(metavar="SIZE"),
]
"""Bytes per second; None: no bound."""


class PaceRequest(Request):
    """Verify or restore a backup."""

    max_bytes_per_second: Pace = None


class BackupOptions(Request):
    """How a backup is made."""

    freeze_id: Annotated[str | None, Option(name="freeze", metavar="ID", form=False)] = None
    """Copy this freeze (default: one of its own)."""
    incremental_from: Annotated[str | None, Option(metavar="BACKUP", form=False)] = None
    """Take unchanged files from this earlier backup, read the rest."""
    checksum: bool = False
    """Compute the SHA-256 of every file, also where the store could copy by itself."""
    max_bytes_per_second: Pace = None


class _Destination(Request):
    """Where a backup goes."""

    destination: Annotated[str, Option(metavar="DEST", argument=True)]
    """Path or `s3://` URI; the backup is a folder below it. Empty: the Airflow Variable `omnigraph_backups`."""
    incremental: Annotated[bool, Option(shell=False)] = False
    """Take unchanged files from the newest finished backup of the graph there."""


class BackupRequest(BackupOptions, _Destination):
    """Copy the graph, all branches at one cut."""
