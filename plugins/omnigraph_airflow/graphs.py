"""The graphs file of this deployment: where it is, and its graphs by name."""

from __future__ import annotations

import logging
import os
import re
from datetime import timedelta
from typing import TYPE_CHECKING

from airflow.sdk import Variable

from omnigraph_ops.config.graph_entries import GRAPHS_FILE, NAME, GraphEntry
from omnigraph_ops.errors import InvalidInput, did_you_mean
from omnigraph_ops.storage.location import real_place

if TYPE_CHECKING:
    from collections.abc import Mapping

    from omnigraph_ops.config.graphs_file import Reading

VARIABLE = "omnigraph_graphs_file"


def graphs_file() -> str | None:
    """The path of the graphs file, None when the deployment has none. Reads."""
    return os.environ.get(GRAPHS_FILE) or Variable.get(VARIABLE, default=None) or None


def read_graphs_file() -> Reading | None:
    """What the graphs file says, faults and all; None when there is none. Reads."""
    from omnigraph_ops.config.graphs_file import read_graphs

    path = graphs_file()
    return None if path is None else read_graphs(path)


def default_graph() -> str | None:
    """What an empty param `graph` means: a name, a path or a URI; None when nobody said. Reads."""
    return Variable.get("omnigraph_graph", default=None) or os.environ.get("OMNIGRAPH_GRAPH") or None


def graphs_offered() -> Mapping[str, str]:
    """The graphs that a form offers, each with its place and how its nights clean up. Reads.

    A broken file offers those that it describes well.
    """
    from omnigraph_ops.stages.cleanup.stage import policy_text

    reading = read_graphs_file()
    entries = () if reading is None else reading.graphs
    return {entry.name: f"`{entry.place}`; its nights: {policy_text(entry.retention.policy)}" for entry in entries}


def is_name(graph: str) -> bool:
    """Whether this is spelled like a name in a graphs file; a path has a slash or a dot. Pure."""
    return re.fullmatch(NAME, graph) is not None


def approvers_of(root: str) -> tuple[str, ...]:
    """Who may answer about the graph that lies there, however it was addressed; empty: everybody. Reads.

    Of a folder of datasets and of a dataset in it, both lists count.

    Raises:
        InvalidInput: the file describes no such graph without a fault, so it may be the one that is at fault; or nobody
            is in all lists that count.
    """
    reading = read_graphs_file()
    if reading is None:
        return ()
    found = _entries_at(reading, root)
    if reading.problems and not (found and all(entry.approvals.approvers for entry in found)):
        raise InvalidInput(
            f"{reading.file} has faults, so nobody knows who may approve at {root}; nothing was done, and an answer "
            f"that was given does not count; mend the faults, then clear this task with its downstream tasks; "
            f"the first fault is {reading.problems[0]}"
        )
    lists = [entry.approvals.approvers for entry in found if entry.approvals.approvers]
    everywhere = tuple(
        dict.fromkeys(name for names in lists for name in names if all(name in other for other in lists))
    )
    if lists and not everywhere:
        raise _undescribed(reading, f"user who may approve at {root}: the graphs that overlap it have nobody in common")
    return everywhere


def answer_within_of(root: str) -> timedelta | None:
    """How long a question about the graph that lies there waits; None: the file does not say. Reads.

    Of a folder of datasets and of a dataset in it, the shorter time counts.
    """
    reading = read_graphs_file()
    found = _entries_at(reading, root) if reading is not None else []
    return timedelta(seconds=min(entry.approvals.answer_within for entry in found)) if found else None


def _entries_at(reading: Reading, root: str) -> list[GraphEntry]:
    """The graphs of the file that lie there, contain that place or lie in it. Reads the file system."""
    place = real_place(root)
    return [entry for entry in reading.graphs if _overlap(real_place(entry.root), place)]


def _overlap(one: str, other: str) -> bool:
    """Whether two places are the same, or one lies in the other. Pure."""
    return f"{one}/".startswith(f"{other}/") or f"{other}/".startswith(f"{one}/")


def _undescribed(reading: Reading, what: str) -> InvalidInput:
    """The error about a graph that the file does not describe, or not without a fault. Writes the log."""
    for problem in reading.problems:
        logging.getLogger(__name__).warning("%s", problem)
    faults = f"; it has faults, first {reading.problems[0]}" if reading.problems else ""
    return InvalidInput(f"{reading.file} describes no {what}{faults}")


def entry_named(graph: str) -> GraphEntry | None:
    """The graph of that name; None when it is no name, or the deployment has no file. Reads.

    Raises:
        InvalidInput: the file does not describe such a graph, or not without a fault.
    """
    reading = read_graphs_file() if is_name(graph) else None
    if reading is None:
        return None
    for entry in reading.graphs:
        if entry.name == graph:
            return entry
    why = "the name is wrong, or its entry was renamed or removed"
    like = did_you_mean(graph, [entry.name for entry in reading.graphs])
    raise _undescribed(reading, f"graph {graph!r}, so it was not opened: {why}; name a graph of the file{like}")
