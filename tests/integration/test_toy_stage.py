"""A stage is an object and a line of the registry: the shell, the history and the audit log have it from there."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from omnigraph_ops.cli import parsing  # noqa: F401 - declares the others
from omnigraph_ops.cli.call import cli as group
from omnigraph_ops.cli.stages import declare_planned
from omnigraph_ops.coordination.state import RUNS_DIR, TASKS_DIR
from omnigraph_ops.errors import StorageError
from omnigraph_ops.graph import Graph
from omnigraph_ops.models.history import RunOutcome
from omnigraph_ops.models.runs import TaskAttempt
from omnigraph_ops.outcomes import audit_log
from omnigraph_ops.outcomes.results import STAGES, Snapshot
from omnigraph_ops.outcomes.runs import RecordedRun, settle
from omnigraph_ops.outcomes.task_journals import close, leave, read_tasks
from omnigraph_ops.progress import SILENT, Counted, Lines
from omnigraph_ops.storage.store import Storage
from tests.conftest import DemoGraph
from tests.support.edges import raising, when_asked
from tests.support.history import header
from tests.support.leases import bury_runs
from tests.support.shell import Cli, assert_refused
from tests.support.toy_stage import SHELF, Shelve, ShelveReport, ShelveRequest, register


@pytest.fixture(autouse=True)
def declared(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The verb of the toy stage, as `omnigraph_ops.cli.stages` declares those of the registry."""
    register(monkeypatch)
    before = dict(group.commands)
    declare_planned(Shelve())
    yield
    group.commands = before


@pytest.fixture
def graph(demo_graph: DemoGraph) -> Graph:
    return demo_graph(loads=1, rows=6, node_types=1)


def test_it_is_a_verb_with_help_and_options_from_its_request(cli: Cli) -> None:
    assert "Put markers on the shelf of a graph." in cli("--help", "").out
    shown = " ".join(cli("shelve", "--help").out.split())
    assert "--markers" in shown
    assert "Put so many markers on the shelf." in shown
    assert "--label" in shown
    assert "--force" not in shown


def test_a_preview_changes_nothing_and_names_the_command_that_applies_it(graph: Graph, cli: Cli) -> None:
    preview = cli("shelve --markers 3 --label x", graph.uri)
    assert (preview.code, "3 markers" in preview.out, "marker-2" in preview.out) == (0, True, True)
    assert preview.err.endswith(f"omnigraph-ops shelve {graph.uri} --markers 3 --label x --confirm\n")
    assert not graph.storage.list(SHELF)


def test_what_decides_has_to_be_written_and_a_wrong_value_is_named(graph: Graph, cli: Cli) -> None:
    assert_refused(cli("shelve --confirm", graph.uri), "nothing was shelved; add --markers 2", code=2)
    assert_refused(cli("shelve --markers none", graph.uri), "--markers: 'none' is not a whole number", code=2)
    assert_refused(cli("shelve --markers 1 --confirm", "s3://bucket/g"), "refusing destructive `shelve`")


def test_a_saved_plan_is_applied_and_is_in_history_and_audit_log(graph: Graph, cli: Cli, tmp_path: object) -> None:
    plan = f"{tmp_path}/plan.json"
    assert cli(f"shelve --markers 2 --save-plan {plan}", graph.uri).code == 0
    done = cli(f"shelve --plan {plan} --confirm --json", graph.uri)
    assert (done.code, done.json["markers"]) == (0, ["marker-0", "marker-1"])
    assert sorted(graph.storage.list(SHELF)) == ["marker-0", "marker-1"]
    told = cli("history --json", graph.uri)
    assert told.code == 0, told
    (run,) = told.json["runs"]
    assert (run["header"]["verb"], run["outcome"], run["notes"]) == ("shelve", "succeeded", ["2 markers shelved"])
    assert [decision["stage"] for decision in run["decisions"]] == ["shelve"]
    entries = cli("audit --json", graph.uri).json["entries"]
    assert [(e["verb"], e["event"], e["detail"]) for e in entries][-1] == ("shelve", "applied", "2 markers shelved")
    assert json.loads(cli("shelve --markers 1 --json", graph.uri).out)["digest"].startswith("sha256:")


class _KilledAt(Lines):
    """Ends the process once so much is done."""

    def __init__(self, done: int) -> None:
        super().__init__(print)
        self._done = done

    def at(self, what: str, done: int, total: int | None, unit: Counted) -> None:
        if done == self._done:
            raise KeyboardInterrupt


def killed(graph: Graph, markers: int, task: TaskAttempt | None = None) -> RecordedRun:
    """A run that was killed after it had put so many of three markers there. Writes."""
    run = RecordedRun(graph, header("cli/cut/off", verb="shelve"), Snapshot(), task)
    plan = Shelve().plan(graph, ShelveRequest(markers=3), SILENT)

    with pytest.raises(KeyboardInterrupt):
        Shelve().apply(graph.with_run(run), plan, _KilledAt(markers))
    return run


@pytest.mark.parametrize("ended", [True, False], ids=["its unit ended", "its unit did not"])
def test_what_a_killed_run_did_is_told_by_its_own_report(
    graph: Graph, monkeypatch: pytest.MonkeyPatch, *, ended: bool
) -> None:
    if not ended:
        gone = raising(StorageError("the store is away"))
        when_asked(monkeypatch, Storage, "write", gone, about=rf"^{RUNS_DIR}/.*/\d{{6}}\.json$", skip=1)
    killed(graph, 2)
    bury_runs(graph.storage)
    (record,) = settle(graph)
    assert (record.outcome, record.notes) == (RunOutcome.INTERRUPTED, ("2 markers shelved",))
    assert audit_log.log_of(graph.storage, "").entries[-1].detail.endswith("; 2 markers shelved")


def test_the_attempts_of_its_task_add_up(graph: Graph) -> None:
    leave(graph, killed(graph, 1, TaskAttempt(task_id="shelve")))
    again = killed(graph, 2, TaskAttempt(task_id="shelve", try_number=2))
    bury_runs(graph.storage, TASKS_DIR)
    close(graph, again.header.run_id, is_over=lambda _task: True)
    done = read_tasks(graph.storage, again.header.run_id).results("shelve").reports[Shelve.name]
    assert isinstance(done, ShelveReport)
    assert done.markers == ("marker-0", "marker-0", "marker-1")


def test_a_journal_of_a_stage_that_this_release_lacks_stays(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    killed(graph, 2)
    bury_runs(graph.storage)
    monkeypatch.delitem(STAGES, Shelve.name)
    said: list[str] = []
    assert settle(graph, warn=said.append) == ()
    assert "this release does not know the stage 'shelve'; the journal stays" in said[0]
