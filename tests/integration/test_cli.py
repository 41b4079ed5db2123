"""The shell face: exit codes, field names, the target line."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from omnigraph_ops import __version__
from omnigraph_ops.cli import main
from omnigraph_ops.graph.layout import RECOVERY_DIR
from omnigraph_ops.storage.store import Storage
from tests.conftest import DemoGraph
from tests.support.converged import assert_converged, assert_pins_are_heads
from tests.support.edges import raising, when_asked
from tests.support.rows import rows_everywhere, tree_of
from tests.support.shell import Cli, Outcome, assert_refused

SMALL = {"loads": 3, "rows": 12, "node_types": 1}
WRITING = ("recover", "optimize", "repair --confirm", "cleanup --keep 1 --confirm")
VERBS = ("check", "plan", "repair", "cleanup --keep 1", *WRITING)
ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_a_round_in_the_order_of_a_night(cli: Cli, demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, **SMALL)
    rows = rows_everywhere(graph)
    assert cli("check", graph.uri).code == 0
    assert "2 to optimize" in cli("plan", graph.uri).out
    assert "frags 3 → 1 ✓" in cli("optimize", graph.uri).out
    assert cli("repair", graph.uri).err.count("no table has drifted: nothing to repair") == 1
    assert "across 2 tables" in cli("cleanup --keep 1 --confirm", graph.uri).out
    assert rows_everywhere(graph) == rows
    assert_converged(graph)


@pytest.mark.slow
def test_the_target_line_is_on_stderr_and_quiet_removes_it(cli: Cli, demo_graph: DemoGraph) -> None:
    root = demo_graph(**SMALL).uri
    for verb in ("check", "plan", "recover", "repair", "optimize", "cleanup --keep 9 --confirm"):
        assert cli(verb, root).err.splitlines()[-1:] != []
        assert f"omnigraph-ops {verb.split()[0]} → {root} (direct, local)" in cli(verb, root).err
        assert cli(verb, root, "--quiet").err == ""


FIELDS = {
    "check": {
        *("uri", "stamp", "status", "sidecars", "staging_files", "schema_apply_lock", "drift", "advice"),
        *("branch_findings", "schema_mismatch", "damaged"),
    },
    "recover": {"uri", "outcomes", "status"},
    "health": {"uri", "stamp", "graph_version", "score", "tables", "internal", "gaps"},
    "plan": {"uri", "stamp", "graph_version", "tables", "not_after_us", "left"},
    "optimize": {"uri", "tables", "bytes_rewritten", "bytes_planned", "bytes_ingested", "write_amplification"},
    "audit": {"uri", "entries", "unreadable"},
    **{
        verb: {"uri", "confirm", "force", "manifest_version", "tables", "digest", "already_published"}
        for verb in ("repair", "repair --confirm")
    },
    "cleanup --keep 1 --confirm": {
        "uri",
        "keep_versions",
        "older_than_secs",
        "expiry",
        "tables",
        "versions_removed",
        "orphaned_forks_removed",
        "orphaned_forks_failed",
    },
    "cleanup --keep 1": {
        *("uri", "stamp", "policy", "planned_at_us", "expires_at_us"),
        *("tables", "orphaned_forks", "kept_forks", "digest"),
    },
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


@pytest.mark.slow
def test_drift_is_repaired_only_with_the_right_flags(cli: Cli, demo_graph: DemoGraph) -> None:
    graph = demo_graph(**SMALL, drift_tables=("node:Person",), drift_kind="delete")
    assert "1 uncovered" not in cli("check", graph.uri).out
    assert "drift, uncovered" in cli("check", graph.uri).out
    preview = cli("repair", graph.uri)
    left = "node:Person would be left: not verified maintenance; --force takes them, too"
    assert (preview.code, preview.err.splitlines()[-2]) == (0, left)
    refused = cli("repair --confirm", graph.uri)
    assert (refused.code, "refused" in refused.out) == (1, True)
    assert "Error: repair refused 1 suspicious or unverifiable table, nothing of them changed; review" in refused.err
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
    assert re.search(r"^  Digest +sha256:[0-9a-f]{64}$", outcome.out, re.MULTILINE)
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
    assert_refused(
        cli("cleanup --confirm --keep 1 --plan", graph.uri, str(tmp_path / "good")), "its own policy", code=2
    )
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
    assert (outcome.code, "1 table failed" in outcome.out) == (1, True)
    assert "Error: cleanup failed for 1 of 2 tables" in outcome.err


def test_keep_0_behaves_as_1_with_a_warning(cli: Cli, demo_graph: DemoGraph) -> None:
    outcome = cli("cleanup --keep 0", demo_graph(**SMALL).uri)
    assert (outcome.code, "--keep 0 behaves as 1" in outcome.err) == (0, True)


def test_destroying_on_a_remote_graph_needs_consent(cli: Cli) -> None:
    for flags in ("", " --json"):
        assert_refused(cli(f"cleanup --keep 5 --confirm{flags}", "s3://bucket/g"), "refusing destructive `cleanup`")


@pytest.mark.parametrize("arguments", [[], ["banana"], ["plan", "g", "--banana"], ["check", "a", "b"]])
def test_usage_errors_exit_with_2(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    code = main(arguments)
    out, err = capsys.readouterr()
    assert_refused(Outcome(code=code, out=out, err=err), "--help` lists", code=2)


@pytest.mark.parametrize(
    ("word", "meant"), [("optimise", "'optimize'"), ("clean", "'cleanup'"), ("expire_rows", "'expire-rows'")]
)
def test_a_misspelled_verb_is_named_with_what_it_may_mean(
    capsys: pytest.CaptureFixture[str], word: str, meant: str
) -> None:
    assert main([word, "g"]) == 2
    assert f"Error: the verb {word!r} is unknown; did you mean {meant}" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize(("flag", "words"), [("--help", "A first round on a graph"), ("--version", __version__)])
def test_help_and_version_start_without_lance(flag: str, words: str) -> None:
    code = (
        "import atexit, sys; atexit.register(lambda: print('lance' in sys.modules)); "
        "from omnigraph_ops.cli import main; main([sys.argv[1]])"
    )
    ran = subprocess.run([sys.executable, "-c", code, flag], capture_output=True, text=True, check=False, cwd=ROOT)
    assert (ran.returncode, words in ran.stdout) == (0, True), ran.stderr
    assert ran.stdout.splitlines()[-1] == "False"


@pytest.mark.slow
def test_no_process_of_a_command_takes_its_time_to_import_pandas(demo_graph: DemoGraph, tmp_path: Path) -> None:
    graph, seen, modules = demo_graph(loads=2, rows=12, node_types=1), tmp_path / "seen", tmp_path / "modules"
    modules.mkdir()
    (modules / "pandas.py").write_text(f"open({str(seen)!r}, 'a').write('imported'); raise ImportError")
    ran = subprocess.run(
        [sys.executable, "-m", "omnigraph_ops", "optimize", graph.uri],
        env={**os.environ, "PYTHONPATH": str(modules)},
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert (ran.returncode, seen.exists()) == (0, False), ran.stderr
    assert "folding index bio_idx" in ran.stderr, "another process writes it"


@pytest.mark.slow
def test_who_waits_for_a_store_that_does_not_answer_is_told_so() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
        variables = {"AWS_ENDPOINT_URL_S3": endpoint, "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
        with subprocess.Popen(
            [sys.executable, "-m", "omnigraph_ops", "check", "s3://lake/graph"],
            env={**os.environ, **variables},
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        ) as running:
            assert running.stderr is not None
            said = [running.stderr.readline() for _ in range(2)]
            running.kill()
    assert said[0] == "omnigraph-ops check → s3://lake/graph (direct, remote)\n"
    assert "still opening s3://lake/graph, for 10 s" in said[1]


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
    burn = raising(ZeroDivisionError("first line\nsecond line"))
    when_asked(monkeypatch, Storage, "list", burn, about=f"^{RECOVERY_DIR}$")
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
    assert "optimize failed for 1 table: node:Person; the others are done; do what the error of each" in outcome.err
    assert "`omnigraph-ops health --files` names all that is gone" in outcome.out
    assert "✓" in outcome.out
