"""`graphs FILE`: check a graphs file and list what it describes."""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass

from omnigraph_ops.cli.output import emit
from omnigraph_ops.config.graphs_file import GraphEntry, load_graphs
from omnigraph_ops.config.graphs_file.schema import json_schema
from omnigraph_ops.errors import UsageError
from omnigraph_ops.views import terminal
from omnigraph_ops.views.markdown import count
from omnigraph_ops.views.view import Section, View


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphLine:
    """One graph of the file, as far as a list goes."""

    name: str
    target: str
    connection: str | None
    schedule: str | None
    owner: str
    retention: str
    approvals: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphList:
    """Every graph of a file without a fault."""

    file: str
    graphs: tuple[GraphLine, ...]


def graphs_verb(args: argparse.Namespace) -> int:
    if args.schema:
        print(json.dumps(json_schema(), indent=2))
        return 0
    if args.file is None:
        raise UsageError("graphs needs a FILE, or --schema")
    found = GraphList(file=args.file, graphs=tuple(map(_listed, load_graphs(args.file))))
    emit(args, found, terminal.shown(_view(found)))
    return 0


def _listed(entry: GraphEntry) -> GraphLine:
    return GraphLine(
        name=entry.name,
        target=entry.place,
        connection=entry.connection,
        schedule=entry.schedule and f"{entry.schedule} {entry.timezone}",
        owner=entry.owner,
        retention=_retention(entry),
        approvals=_approvals(entry),
    )


def _retention(entry: GraphEntry) -> str:
    said = entry.retention
    parts = (
        None if said.expiry is None else f"expiry, at least {said.expiry.retain_min}",
        None if said.keep is None else f"keep {said.keep}",
        None if said.older_than is None else f"older than {said.older_than}",
        "also between pins" if said.between_pins else None,
    )
    return ", ".join(part for part in parts if part)


def _approvals(entry: GraphEntry) -> str:
    said = entry.approvals
    standing = [verb for verb, given in (("repair", said.repair), ("cleanup", said.cleanup)) if given is not None]
    asked = ", ".join(said.approvers) or "anybody"
    return f"{' and '.join(standing)} standing, else {asked}" if standing else asked


def _view(found: GraphList) -> View:
    rows = tuple((g.name, g.target, g.schedule or "by hand", g.retention, g.approvals) for g in found.graphs)
    header = ("Name", "Target", "Schedule", "Retention", "Approvals")
    return View(
        title=f"graphs {found.file} — {count(len(rows), 'graph')}, no faults",
        sections=(Section(title="Graphs", header=header, rows=rows),),
    )
