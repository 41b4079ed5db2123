"""The shell face: exit codes, field names, the target line, and bad input that writes nothing."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lance
import pytest

from omnigraph_ops import __version__
from omnigraph_ops.cli import main
from omnigraph_ops.graph import Graph
from omnigraph_ops.graph.layout import STAMP_KEY
from omnigraph_ops.graph.sidecars import sidecar_path
from tests.conftest import DemoGraph
from tests.support.converged import assert_converged, assert_pins_are_heads
from tests.support.rows import rows_everywhere, tree_of

SMALL = {"loads": 3, "rows": 12, "node_types": 1}
WRITING = ("recover", "optimize", "repair --confirm", "cleanup --keep 1 --confirm")
VERBS = ("check", "plan", "repair", "cleanup --keep 1", *WRITING)
ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a person at the shell gets."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Cli = Callable[..., Outcome]


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    """Runs one verb in this process: `cli("cleanup --keep 1", root)`."""

    def run(verb: str, root: str, *more: str) -> Outcome:
        capsys.readouterr()
        name, *flags = verb.split()
        try:
            code = main([name, root, *flags, *more])
        except SystemExit as stopped:
            code = int(stopped.code or 0)
        out, err = capsys.readouterr()
        return Outcome(code=code, out=out, err=err)

    return run


def assert_refused(outcome: Outcome, words: str, code: int = 1) -> None:
    """One sentence on stderr, nothing on stdout, no traceback."""
    assert outcome.code == code, outcome
    errors = [line for line in outcome.err.splitlines() if line.startswith("Error: ")]
    assert len(errors) == 1, outcome.err
    assert words in errors[0]
    assert "Traceback" not in outcome.err
    assert "unexpected" not in outcome.err
    assert outcome.out == ""


def test_a_round_in_the_order_of_a_night(cli: Cli, demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, **SMALL)
    rows = rows_everywhere(graph)
    assert cli("check", graph.uri).code == 0
    assert "2 to optimize" in cli("plan", graph.uri).out
    assert "frags 3 → 1 ✓" in cli("optimize", graph.uri).out
    assert cli("repair", graph.uri).out.splitlines()[-1].startswith("rerun with --confirm")
    assert "across 2 tables" in cli("cleanup --keep 1 --confirm", graph.uri).out
    assert rows_everywhere(graph) == rows
    assert_converged(graph)


def test_the_target_line_is_on_stderr_and_quiet_removes_it(cli: Cli, demo_graph: DemoGraph) -> None:
    root = demo_graph(**SMALL).uri
    for verb in ("check", "plan", "recover", "repair", "optimize", "cleanup --keep 9 --confirm"):
        assert cli(verb, root).err.splitlines()[-1:] != []
        assert f"omnigraph-ops {verb.split()[0]} → {root} (direct, local)" in cli(verb, root).err
        assert cli(verb, root, "--quiet").err == ""


FIELDS = {
    "check": {"uri", "stamp", "status", "sidecars", "staging_files", "schema_apply_lock", "drift", "advice"},
    "recover": {"uri", "outcomes", "status"},
    "plan": {"uri", "stamp", "graph_version", "tables"},
    "optimize": {"uri", "tables"},
    "repair": {"uri", "confirm", "force", "manifest_version", "tables"},
    "repair --confirm": {"uri", "confirm", "force", "manifest_version", "tables"},
    "cleanup --keep 1 --confirm": {"uri", "keep_versions", "older_than_secs", "tables", "orphaned_forks_removed"},
    "cleanup --keep 1": {"uri", "stamp", "policy", "planned_at_us", "tables", "orphaned_forks", "digest"},
}
TABLE_FIELDS = {
    "optimize": {
        *("table_key", "fragments_removed", "fragments_added", "committed", "skipped"),
        *("manifest_version", "lance_head_version", "pending_indexes"),
    },
    "repair": {
        *("table_key", "manifest_version", "lance_head_version"),
        *("classification", "action", "operations", "error"),
    },
    "cleanup --keep 1 --confirm": {"table_key", "bytes_removed", "old_versions_removed", "error"},
}


@pytest.mark.parametrize("verb", FIELDS)
def test_json_carries_the_engines_names(cli: Cli, demo_graph: DemoGraph, verb: str) -> None:
    outcome = cli(verb, demo_graph(**SMALL).uri, "--json")
    assert (outcome.code, set(outcome.json)) == (0, FIELDS[verb])
    assert outcome.out.startswith('{\n  "')
    for table in outcome.json.get("tables", ()):
        assert set(table) >= TABLE_FIELDS.get(verb, set())


def test_skips_come_with_the_engines_token(cli: Cli, demo_graph: DemoGraph) -> None:
    graph = demo_graph(**SMALL, drift_tables=("node:Person",))
    tables = {t["table_key"]: t for t in cli("optimize", graph.uri, "--json").json["tables"]}
    assert tables["node:Person"]["skipped"] == "drift_needs_repair"
    assert tables["edge:Knows"]["skipped"] is None
    assert tables["edge:Knows"]["manifest_version"] is None


def test_drift_is_repaired_only_with_the_right_flags(cli: Cli, demo_graph: DemoGraph) -> None:
    graph = demo_graph(**SMALL, drift_tables=("node:Person",), drift_kind="delete")
    assert "1 uncovered" not in cli("check", graph.uri).out
    assert "drift, uncovered" in cli("check", graph.uri).out
    assert cli("repair", graph.uri).code == 0
    refused = cli("repair --confirm", graph.uri)
    assert (refused.code, "refused" in refused.out) == (1, True)
    assert "Error: repair refused 1 suspicious or unverifiable table(s); review" in refused.err
    usage = cli("repair --force", graph.uri)
    assert_refused(usage, "--force requires --confirm", code=2)
    forced = cli("repair --force --confirm", graph.uri)
    assert (forced.code, "forced" in forced.out) == (0, True)
    assert_pins_are_heads(graph)


def test_cleanup_without_confirm_deletes_nothing_and_says_so(cli: Cli, demo_graph: DemoGraph) -> None:
    graph = demo_graph(**SMALL)
    tree = tree_of(graph.uri)
    outcome = cli("cleanup --keep 5 --older-than 7d", graph.uri)
    assert outcome.code == 0
    assert (
        f"cleanup is destructive — rerun with --confirm. Policy for {graph.uri}: "
        "keep 5 versions, remove anything older than 604800s\n"
    ) in outcome.err
    assert outcome.out.splitlines()[-1].startswith("digest sha256:")
    assert tree_of(graph.uri) == tree


def test_an_approved_plan_is_applied_and_an_altered_one_is_not(cli: Cli, demo_graph: DemoGraph, tmp_path: Path) -> None:
    graph = demo_graph(**SMALL)
    plan = cli("cleanup --keep 2", graph.uri, "--json").json
    altered = json.loads(json.dumps(plan))
    altered["tables"][0]["versions"].append(99)
    for name, document in (("good", plan), ("bad", altered)):
        (tmp_path / name).write_text(json.dumps(document))
    tree = tree_of(graph.uri)
    assert_refused(cli("cleanup --confirm --plan", graph.uri, str(tmp_path / "bad")), "altered")
    assert_refused(cli("cleanup --confirm --plan", graph.uri, str(tmp_path / "none")), "cannot read the plan")
    assert_refused(cli("cleanup --confirm --keep 1 --plan", graph.uri, str(tmp_path / "good")), "own policy", code=2)
    assert tree_of(graph.uri) == tree
    outcome = cli("cleanup --confirm --plan", graph.uri, str(tmp_path / "good"), "--json")
    assert {t["table_key"]: t["versions"] for t in outcome.json["tables"]} == {
        t["table_key"]: t["versions"] for t in plan["tables"]
    }


def test_a_plan_of_another_graph_is_refused(cli: Cli, demo_graph: DemoGraph, tmp_path: Path) -> None:
    one, two = demo_graph(**SMALL), demo_graph(**SMALL, name="two.omni")
    (tmp_path / "plan").write_text(cli("cleanup --keep 1", one.uri, "--json").out)
    tree = tree_of(two.uri)
    assert_refused(cli("cleanup --confirm --plan", two.uri, str(tmp_path / "plan")), "the plan is for")
    assert tree_of(two.uri) == tree


def test_cleanup_exits_with_1_when_a_table_failed(cli: Cli, demo_graph: DemoGraph) -> None:
    graph = demo_graph(**SMALL, drift_tables=("node:Person",))
    outcome = cli("cleanup --keep 1 --confirm", graph.uri)
    assert (outcome.code, "1 table(s) failed" in outcome.out) == (1, True)
    assert "Error: cleanup failed for 1 of 2 table(s)" in outcome.err


def test_keep_0_behaves_as_1_with_a_warning(cli: Cli, demo_graph: DemoGraph) -> None:
    outcome = cli("cleanup --keep 0", demo_graph(**SMALL).uri)
    assert (outcome.code, "--keep 0 behaves as 1" in outcome.err) == (0, True)


def test_destroying_on_a_remote_graph_needs_consent(cli: Cli) -> None:
    for flags in ("", " --json"):
        assert_refused(cli(f"cleanup --keep 5 --confirm{flags}", "s3://bucket/g"), "refusing destructive `cleanup`")


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("kind", ["missing", "empty_folder", "file", "other_folder"])
def test_what_is_no_graph_is_left_alone(cli: Cli, tmp_path: Path, verb: str, kind: str) -> None:
    target = tmp_path / "there"
    if kind == "file":
        target.write_text("mine")
    elif kind != "missing":
        target.mkdir()
    if kind == "other_folder":
        (target / "__manifest").mkdir()
        (target / "__manifest" / "notes.txt").write_text("mine")
    tree = tree_of(tmp_path)
    assert_refused(cli(verb, str(target)), str(target))
    assert tree_of(tmp_path) == tree


@pytest.mark.parametrize("stamp_text", ["1", "2", "4", "5", "7", "banana", ""])
def test_other_generations_are_refused_with_what_to_do(cli: Cli, demo_graph: DemoGraph, stamp_text: str) -> None:
    graph = demo_graph(**SMALL)
    lance.dataset(f"{graph.uri}/__manifest").update_schema_metadata({STAMP_KEY: stamp_text})
    tree = tree_of(graph.uri)
    words = {"1": "0.7.2", "2": "0.7.2", "4": "0.9.0", "5": "0.9.0", "7": "upgrade omnigraph-ops"}
    for verb in ("check", *WRITING):
        assert_refused(cli(verb, graph.uri), words.get(stamp_text, "unreadable stamp"))
    assert tree_of(graph.uri) == tree


@pytest.mark.parametrize("file", ["_schema.pg", "_schema.ir.json", "__schema_state.json"])
@pytest.mark.parametrize("damage", ["missing", "not_json", "not_text", "other_version"])
def test_a_broken_contract_is_named(cli: Cli, demo_graph: DemoGraph, stamp: int, file: str, damage: str) -> None:
    if file == "_schema.pg" and damage in {"not_json", "other_version"}:
        pytest.skip("the schema source is neither JSON nor versioned")
    graph = demo_graph(stamp=stamp, **SMALL)
    path = Path(graph.uri, file)
    if damage == "missing":
        path.unlink()
    elif damage == "other_version":
        path.write_text(path.read_text().replace('_version": ', '_version": 9'))
    else:
        path.write_bytes(b"{" if damage == "not_json" else b"\xff\xfe")
    tree = tree_of(graph.uri)
    for verb in ("check", *WRITING):
        assert_refused(cli(verb, graph.uri), file)
    assert tree_of(graph.uri) == tree


@pytest.mark.parametrize("verb", ["plan", "optimize", "repair", "repair --confirm", "cleanup --keep 1 --confirm"])
def test_an_unknown_table_is_named(cli: Cli, demo_graph: DemoGraph, verb: str) -> None:
    graph = demo_graph(**SMALL)
    tree = tree_of(graph.uri)
    assert_refused(cli(verb, graph.uri, "--table", "node:Nobody"), "node:Nobody")
    assert tree_of(graph.uri) == tree


@pytest.mark.parametrize("verb", VERBS)
def test_a_server_address_is_refused(cli: Cli, verb: str) -> None:
    assert_refused(cli(verb, "http://localhost:8080"), "server address")


@pytest.mark.parametrize(
    ("flags", "words", "code"),
    [
        ("--keep -1", "not a whole number", 2),
        ("--keep banana", "not a whole number", 2),
        ("--keep 99999999999", "not a whole number", 2),
        ("", "requires at least one of --keep or --older-than", 1),
        ("--older-than banana", "unknown duration unit", 1),
        ("--older-than 1.5h", "invalid duration", 1),
        ("--older-than=-1d", "invalid duration", 1),
    ],
)
def test_bad_retention_is_refused(cli: Cli, demo_graph: DemoGraph, flags: str, words: str, code: int) -> None:
    graph = demo_graph(**SMALL)
    tree = tree_of(graph.uri)
    for confirm in ("", " --confirm"):
        outcome = cli(f"cleanup {flags}{confirm}", graph.uri)
        assert (outcome.code, words in outcome.err, "Traceback" in outcome.err) == (code, True, False)
    assert tree_of(graph.uri) == tree


def arm(graph: Graph) -> None:
    graph.storage.write(sidecar_path("01ARYZ6S410000000000000000"), b'{"schema_version": 99}')


def stage(graph: Graph) -> None:
    graph.storage.write("_schema.pg.staging", b"node X {}")


def lock(graph: Graph) -> None:
    graph.manifest().create_branch("__schema_apply_lock__")


@pytest.mark.parametrize("obstacle", [arm, stage, lock], ids=lambda o: o.__name__)
@pytest.mark.parametrize("verb", ["optimize", "repair", "repair --confirm", "cleanup --keep 1 --confirm"])
def test_whatever_is_pending_stops_every_write(
    cli: Cli, demo_graph: DemoGraph, stamp: int, verb: str, obstacle: Callable[[Graph], None]
) -> None:
    graph = demo_graph(stamp=stamp, **SMALL)
    plan = Path(graph.uri).parent / "plan.json"
    plan.write_text(cli("cleanup --keep 1", graph.uri, "--json").out)
    obstacle(graph)
    tree = tree_of(graph.uri)
    assert_refused(cli(verb, graph.uri), graph.uri)
    assert_refused(cli("cleanup --confirm --plan", graph.uri, str(plan)), graph.uri)
    assert cli("check", graph.uri).code == 4
    assert tree_of(graph.uri) == tree


def test_recover_leaves_what_it_may_not_finish_and_says_so(cli: Cli, demo_graph: DemoGraph) -> None:
    graph = demo_graph(**SMALL)
    arm(graph)
    tree = tree_of(graph.uri)
    outcome = cli("recover", graph.uri)
    assert (outcome.code, "left_to_engine" in outcome.out) == (4, True)
    assert tree_of(graph.uri) == tree


def as_nobody(verb: str, root: str) -> Outcome:
    """The command as a user who may read everything and write nothing."""
    # The plan comes first, so that everything is imported while this interpreter can still be read.
    code = (
        "import os, sys; from omnigraph_ops.cli import main; main(['plan', sys.argv[2], '--quiet']); "
        "os.setgid(65534); os.setuid(65534); print('=', flush=True); sys.exit(main(sys.argv[1:]))"
    )
    name, *flags = verb.split()
    ran = subprocess.run(
        [sys.executable, "-c", code, name, root, *flags],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "HOME": "/tmp", "PYTHONDONTWRITEBYTECODE": "1"},
    )
    return Outcome(code=ran.returncode, out=ran.stdout.partition("=\n")[2], err=ran.stderr)


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root can become an unprivileged user")
@pytest.mark.parametrize("verb", ["optimize", "repair --confirm", "cleanup --keep 1 --confirm"])
def test_a_graph_without_write_permission_stays_as_it_is(demo_graph: DemoGraph, verb: str) -> None:
    graph = demo_graph(**SMALL, drift_tables=("edge:Knows",))
    for folder in (Path(graph.uri), *Path(graph.uri).parents):
        if folder != Path("/tmp") and folder.is_relative_to("/tmp"):
            folder.chmod(0o755)
    tree = tree_of(graph.uri)
    outcome = as_nobody(verb, graph.uri)
    assert outcome.code == 1, outcome
    assert "Permission denied" in outcome.out + outcome.err
    assert len([line for line in outcome.err.splitlines() if line.startswith("Error: ")]) == 1
    assert "Traceback" not in outcome.err
    assert "unexpected" not in outcome.err
    assert tree_of(graph.uri) == tree


@pytest.mark.parametrize("arguments", [[], ["banana"], ["plan", "g", "--banana"], ["check", "a", "b"]])
def test_usage_errors_exit_with_2(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2
    assert "usage: omnigraph-ops" in capsys.readouterr().err


@pytest.mark.parametrize(("flag", "words"), [("--help", "A first round on a graph"), ("--version", __version__)])
def test_help_and_version_start_without_lance(flag: str, words: str) -> None:
    code = (
        "import atexit, sys; atexit.register(lambda: print('lance' in sys.modules)); "
        "from omnigraph_ops.cli import main; main([sys.argv[1]])"
    )
    ran = subprocess.run([sys.executable, "-c", code, flag], capture_output=True, text=True, check=False, cwd=ROOT)
    assert (ran.returncode, words in ran.stdout) == (0, True), ran.stderr
    assert ran.stdout.splitlines()[-1] == "False"


def test_demo_graph_writes_what_was_asked_for(cli: Cli, tmp_path: Path, stamp: int) -> None:
    outcome = cli(
        f"demo-graph --stamp {stamp} --loads 2 --rows 6 --types 2 --lazy-branches 1 --json", str(tmp_path / "g")
    )
    assert (outcome.code, outcome.json["stamp"], outcome.json["branches"]) == (0, stamp, ["lazy-1"])
    assert "load 2 of 2" in outcome.err
    again = cli("demo-graph", str(tmp_path / "g"))
    assert_refused(again, "not empty")


def test_an_unforeseen_error_is_still_one_sentence(
    cli: Cli, demo_graph: DemoGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    def burn(*_: object, **__: object) -> None:
        raise ZeroDivisionError("first line\nsecond line")

    monkeypatch.setattr("omnigraph_ops.cli.verbs.check", burn)
    outcome = cli("check", demo_graph(**SMALL).uri, "--quiet")
    assert outcome.code == 1
    assert outcome.err.startswith("Error: unexpected ZeroDivisionError: first line; run `omnigraph-ops check`")
    assert len(outcome.err.splitlines()) == 1


def test_a_table_that_failed_is_named_and_exits_with_1(cli: Cli, demo_graph: DemoGraph) -> None:
    graph = demo_graph(**SMALL)
    entry = next(e for e in graph.state().entries if e.table_key == "node:Person")
    shutil.rmtree(f"{graph.table_uri(entry)}/data")
    outcome = cli("optimize", graph.uri, "--quiet")
    assert outcome.code == 1
    assert "optimize failed for 1 table(s): node:Person; the others are done" in outcome.err
    assert "✓" in outcome.out
