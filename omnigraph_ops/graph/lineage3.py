"""The commit graph of stamp 3: one row per publish, each naming the one before it."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

Row = Mapping[str, Any]


def head_of(rows: Iterable[Row]) -> Row | None:
    """The newest commit, as every reader ranks them. Pure."""
    return max(rows, key=_rank, default=None)


def above(head: Row | None, manifest_version: int, created: datetime) -> dict[str, Any]:
    """What makes a row the head after `head`. Pure.

    Its publish may be older than that of its parent, by a writer that was faster to append, and so may its clock: the
    next writer would take the parent for the head and fork the lineage.
    """
    if head is None:
        return {"parent_commit_id": None, "manifest_version": manifest_version, "created_at": created}
    return {
        "parent_commit_id": head["graph_commit_id"],
        "manifest_version": max(manifest_version, head["manifest_version"]),
        "created_at": max(created, head["created_at"] + timedelta(microseconds=1)),
    }


def straightened(rows: Iterable[Row]) -> dict[str, str]:
    """The parents, by commit id, that rows of a forked lineage get so that it is one line. Pure.

    Of the lines that begin at one commit, each goes on where the one before it ends, the oldest first.
    """
    children: dict[str, list[Row]] = {}
    by_id = {row["graph_commit_id"]: row for row in rows}
    for row in sorted(by_id.values(), key=_rank):
        if row["parent_commit_id"] in by_id:
            children.setdefault(row["parent_commit_id"], []).append(row)
    moved: dict[str, str] = {}
    # From the newest fork down: what follows a fork is a line by then.
    for parent in sorted((p for p, found in children.items() if len(found) > 1), key=lambda p: _rank(by_id[p]))[::-1]:
        lines = sorted(((_end(row, children), row) for row in children[parent]), key=lambda line: _rank(line[0]))
        for (end, _), (_, first) in itertools.pairwise(lines):
            moved[first["graph_commit_id"]] = end["graph_commit_id"]
            children[end["graph_commit_id"]] = [first]
        children[parent] = [lines[0][1]]
    return moved


def _end(row: Row, children: Mapping[str, list[Row]]) -> Row:
    while row["graph_commit_id"] in children:
        (row,) = children[row["graph_commit_id"]]
    return row


def _rank(row: Row) -> tuple[Any, ...]:
    return row["manifest_version"], row["created_at"], row["graph_commit_id"]
