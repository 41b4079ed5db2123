"""The verbs about this installation: graphs, settings, calibrate, the text indexers, completion, a demo graph."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import rich_click as click
from click.shell_completion import get_completion_class

from omnigraph_ops import serde
from omnigraph_ops.cli.call import COMPLETE, PROGRAM, Call, cli, verb
from omnigraph_ops.cli.options import ADDRESS, COUNT, MASTER, PATH, OneOf, flag, together
from omnigraph_ops.config.settings import Settings, SettingsReport, settings_report
from omnigraph_ops.errors import UsageError
from omnigraph_ops.models.runs import CalibratedJob
from omnigraph_ops.quantities import count, duration
from omnigraph_ops.views.view import Section, View

if TYPE_CHECKING:
    from omnigraph_ops.config.graph_entries import GraphEntry

_PANEL = "Set-up"


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
    """Every graph of a file without a fault; else its faults."""

    file: str
    graphs: tuple[GraphLine, ...]
    faults: tuple[str, ...] = ()
    """A line each, as it is printed."""


@verb(
    "graphs",
    "Check a graphs file and list its graphs.\n\nEvery fault is named with its line. Opens no graph.",
    click.argument("file", type=PATH, metavar="FILE", required=False),
    flag("schema", "Print the file's JSON Schema, for editors."),
    examples=("graphs.yaml", "--schema"),
    panel=_PANEL,
    graph=False,
)
def graphs_verb(call: Call) -> int:
    from omnigraph_ops.config.graphs_file import GraphsFileError, json_schema, load_graphs

    file = call.options["file"]
    if call.options["schema"]:
        call.say(json.dumps(json_schema(), indent=2))
        return 0
    if file is None:
        raise UsageError("graphs needs a FILE, or --schema")
    try:
        found = GraphList(file=file, graphs=tuple(map(_listed, load_graphs(file))))
    except GraphsFileError as error:
        if call.json:
            call.say(serde.dumps(GraphList(file=file, graphs=(), faults=tuple(map(str, error.problems)))))
        raise
    call.emit(found, _view(found))
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
        None if said.older_than is None else f"older than {duration(said.older_than)}",
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
    return View.of(
        f"graphs {found.file} — {count(len(rows), 'graph')}, no faults", Section.table("Graphs", header, rows)
    )


@verb(
    "settings",
    "Show every setting as this environment makes it, those that are set first.",
    examples=("", "--json"),
    panel=_PANEL,
    graph=False,
)
def settings_verb(call: Call) -> int:
    report = settings_report()
    call.emit(report, _settings_view(report))
    return 0


def _settings_view(report: SettingsReport) -> View:
    """What is set, then what is not. Pure."""

    def group(title: str, is_set: bool) -> Section:
        rows = ((s.variable, s.value or "none", s.meaning) for s in report.settings if s.is_set is is_set)
        return Section.table(title, ("Variable", "Value", "Meaning"), rows)

    return View.of(
        f"settings — {sum(s.is_set for s in report.settings)} of {len(report.settings)} are set",
        group("Set here", True),
        group("Defaults", False),
    )


@verb(
    "calibrate",
    """Measure from which size on Spark is faster here.

    Does the same generated work in process and on Spark, and prints the setting that follows: `rewrite` tables, `copy`
    the files of a backup, `verify` or `restore` one, collect the full `evidence` of a repair, plan the removal of
    `orphans`, or `expire` rows.
    """,
    click.option(
        "--job",
        type=OneOf([job.value for job in CalibratedJob]),
        default=CalibratedJob.REWRITE.value,
        show_default=True,
        help="Job of the Spark application to measure.",
    ),
    click.option("--master", type=MASTER, default="local[*]", show_default=True, help="Spark master to submit to."),
    click.option(
        "--scratch",
        type=PATH,
        metavar="DIR",
        help="A folder that the workers reach under the same path (default: a temporary one).",
    ),
    examples=("", "--job copy --master yarn --scratch /shared/scratch"),
    panel=_PANEL,
    graph=False,
)
def calibrate_verb(call: Call) -> int:
    from omnigraph_ops.calibration import jobs

    said = call.options
    found = jobs.calibrate(
        job=CalibratedJob(said["job"]), master=said["master"], scratch=said["scratch"], progress=call.progress
    )
    call.emit(found, jobs.calibration_view(found))
    return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TextIndexers:
    """Where the releases are, which there are, and which of them were installed just now."""

    folder: str
    releases: tuple[str, ...]
    installed: tuple[str, ...]


@verb(
    "install-text-indexer",
    """Install what writes full-text indexes as the engine's own Lance does.

    Installs releases of pylance (about 200 MB each), each in a folder of its own.

    The engine looks up stemmed words. Lance 9 changed the stop words and Lance 11 the stemmer, so an index that this
    tool's own pylance writes hides some words from the engine. With these releases optimize writes text indexes as
    the engine's Lance does: 8.0.1 for graphs of stamp 3, 10.0.0 for those of stamp 6. Without them text indexes are
    left to the engine, and `plan` lists them as pending.

    Run it once per Python environment: on every Airflow worker, and where the driver of a Spark submit runs. `make
    install` and the Dockerfile do it. Releases go below the prefix of this Python, or to OMNIGRAPH_OPS_TEXT_INDEXERS.
    """,
    flag("again", "Install releases that are there already, too."),
    examples=("",),
    panel=_PANEL,
    graph=False,
)
def text_indexer_verb(call: Call) -> int:
    from omnigraph_ops.lance.text_indexer import RELEASES, home_of, install

    home = home_of(Settings.from_env().text_indexers)
    done = install(home, progress=call.progress, again=call.options["again"])
    call.emit(
        TextIndexers(folder=str(home), releases=tuple(RELEASES), installed=done),
        View(title=f"text indexers in {home}: pylance {', '.join(RELEASES)}"),
    )
    return 0


@verb(
    "completion",
    """Print the script that completes verbs and options in a shell.

    \b
    bash: omnigraph-ops completion bash > ~/.local/share/bash-completion/completions/omnigraph-ops
    zsh:  omnigraph-ops completion zsh > "${fpath[1]}/_omnigraph-ops"
    fish: omnigraph-ops completion fish > ~/.config/fish/completions/omnigraph-ops.fish
    """,
    click.argument("shell", type=OneOf(["bash", "zsh", "fish"]), metavar="SHELL"),
    examples=("bash",),
    panel=_PANEL,
    graph=False,
)
def completion_verb(call: Call) -> int:
    found = get_completion_class(call.options["shell"])
    assert found is not None, "click completes for all three"
    call.say(found(cli, {}, PROGRAM, COMPLETE).source())
    return 0


_SHAPE = together(
    *(
        click.option(
            f"--{option}", type=COUNT, default=default, metavar="N", show_default=True, help=f"{text}.", panel="Shape"
        )
        for option, default, text in (
            ("types", 3, "Node types"),
            ("loads", 6, "Loads, each one fragment per table"),
            ("rows", 100, "Rows of the first node type per load"),
            ("deletes", 0, "Rows deleted per table after the loads"),
            ("updates", 0, "Rows updated per table after the loads"),
            ("lazy-branches", 0, "Branches that nobody wrote to"),
            ("written-branches", 0, "Branches with a fork and a write"),
            ("seed", 7, "Seed of the generated rows"),
        )
    )
)


@verb(
    "demo-graph",
    "Write a genuine graph into an empty directory, to try all this on.",
    click.argument("graph", type=ADDRESS, metavar="DIR"),
    click.option(
        "--stamp", type=OneOf(["3", "6"]), default="6", show_default=True, help="Generation to write.", panel="Shape"
    ),
    _SHAPE,
    flag("no-vectors", "Leave the vector column null."),
    click.option("--drift", metavar="KEY", multiple=True, help="Leave this table drifted; may be repeated."),
    examples=("g.omni", "g.omni --stamp 3 --loads 20 --drift node:Person"),
    panel=_PANEL,
    graph=False,
)
def demo_graph_verb(call: Call) -> int:
    from omnigraph_ops.demo import DemoSpec, write_demo_graph

    said = call.options
    spec = DemoSpec(
        stamp=int(said["stamp"]),
        node_types=said["types"],
        loads=said["loads"],
        rows=said["rows"],
        deletes=said["deletes"],
        updates=said["updates"],
        vectors=not said["no_vectors"],
        lazy_branches=said["lazy_branches"],
        written_branches=said["written_branches"],
        drift_tables=said["drift"],
        seed=said["seed"],
    )
    summary = write_demo_graph(said["graph"], spec, progress=call.progress)
    call.say(serde.dumps(summary) if call.json else f"wrote {summary.root} (stamp {summary.stamp})")
    return 0
