"""Bad input at the shell: one sentence, the right exit code, nothing written."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import click
import lance
import pytest

from omnigraph_ops.cli import main, parsing  # noqa: F401 - declares the verbs
from omnigraph_ops.cli.call import cli
from omnigraph_ops.graph import Graph
from omnigraph_ops.graph.layout import STAMP_KEY
from omnigraph_ops.graph.sidecars import sidecar_path
from tests.conftest import DemoGraph
from tests.support.rows import tree_of
from tests.support.shell import Cli, Outcome, assert_refused

pytestmark = pytest.mark.slow

SMALL = {"loads": 3, "rows": 12, "node_types": 1}
WRITING = ("recover", "optimize", "repair --confirm", "cleanup --keep 1 --confirm")
VERBS = ("check", "plan", "repair", "cleanup --keep 1", *WRITING)
ROOT = Path(__file__).resolve().parents[2]


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


@pytest.mark.parametrize("words", ["cleanup --keep 1 --conf", "repair --conf", "optimize --max-byte 1", "check --js"])
def test_a_part_of_an_option_is_not_that_option(cli: Cli, demo_graph: DemoGraph, words: str) -> None:
    graph = demo_graph(**SMALL)
    tree = tree_of(graph.uri)
    assert_refused(cli(words, graph.uri), "No such option", code=2)
    assert tree_of(graph.uri) == tree


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


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("node:Persn", "; did you mean 'node:Person'?"),
        ("person", "; did you mean 'node:Person'?"),
        ("edge:Know", "; did you mean 'edge:Knows'?"),
        ("node:Invoice", "; nothing was written"),
    ],
)
def test_a_misspelled_table_is_named_with_what_it_may_mean(
    cli: Cli, demo_graph: DemoGraph, word: str, meant: str
) -> None:
    refused = cli("plan", demo_graph(**SMALL).uri, "--table", word)
    assert_refused(refused, f"has no table {word!r}")
    assert refused.err.endswith(f"{meant}\n")


@pytest.mark.parametrize("verb", VERBS)
def test_a_server_address_is_refused(cli: Cli, verb: str) -> None:
    assert_refused(cli(verb, "http://localhost:8080"), "server address", code=2)


def addressing_verbs() -> list[list[str]]:
    """A call of every verb that takes the address of a graph or a backup, with `{}` in its place."""
    also = {
        "cleanup": ["--keep", "1"],
        "hold": ["--table", "node:Person"],
        "expire-rows": ["--table", "node:Person", "--property", "age", "--older-than", "1d"],
        "release": ["ID"],
        "unfreeze": ["ID"],
        "files": ["--freeze", "ID"],
    }
    calls = []
    for verb, command in cli.commands.items():
        positional = [p.name for p in command.params if isinstance(p, click.Argument)]
        places = [dest for dest in positional if dest in {"graph", "backup", "destination"}]
        if places:
            calls.append([verb, *(["{}"] * len(places)), *also.get(verb, ())])
    return calls


@pytest.mark.parametrize("call", addressing_verbs(), ids=lambda call: call[0])
@pytest.mark.parametrize(
    ("address", "words"),
    [("s3://b/a/../b/g", "has the segment '..'"), ("s3://b/a%20b", "contains '%'"), ("s3://k:s@b/g", "user info")],
)
def test_every_verb_refuses_an_address_that_is_two_places(
    capsys: pytest.CaptureFixture[str], call: list[str], address: str, words: str
) -> None:
    code = main([part.format(address) for part in call])
    out, err = capsys.readouterr()
    assert_refused(Outcome(code=code, out=out, err=err), words, code=2)
    assert "k:s" not in err


def test_what_must_be_on_this_machine_is_refused_elsewhere(cli: Cli, demo_graph: DemoGraph) -> None:
    graph = demo_graph(**SMALL)
    assert_refused(cli("demo-graph", "s3://bucket/g"), "only written to a local directory")
    assert_refused(cli("orphans --listing", graph.uri, "s3://bucket/inventory.csv"), "is not on this machine")


def test_two_spellings_of_one_local_graph_are_one(
    cli: Cli, demo_graph: DemoGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = demo_graph(**SMALL)
    folder = Path(graph.uri).parent / "elsewhere"
    folder.mkdir()
    monkeypatch.chdir(folder)
    assert cli("freeze --ttl 1h", f"../{Path(graph.uri).name}").code == 0
    for spelling in (graph.uri, f"../{Path(graph.uri).name}/", f"file://{graph.uri}", f"/{graph.uri}//"):
        assert_refused(cli("optimize", spelling), "frozen")
        assert_refused(cli("cleanup --keep 1 --confirm", spelling), "frozen")


@pytest.mark.parametrize(
    ("flags", "words", "code"),
    [
        ("--keep -1", "not a whole number", 2),
        ("--keep banana", "not a whole number", 2),
        ("--keep 99999999999", "not a whole number", 2),
        ("", "requires at least one of keep (--keep) and older_than (--older-than)", 2),
        ("--older-than banana", "unknown duration unit", 2),
        ("--older-than 1.5h", "invalid duration", 2),
        ("--older-than 99999999999999d", "is longer than 365000d", 2),
        ("--older-than=-1d", "invalid duration", 2),
        ("--older-than 7", "has no unit: write 7d for days, 7s for seconds", 2),
        ("--keep 1 --expire", "never mixed with --keep", 2),
        ("--retain-min 5 --retain-max 2 --time-retained 1h --expire-limit 1", "must not be below retain-min", 2),
    ],
)
def test_bad_retention_is_refused(cli: Cli, demo_graph: DemoGraph, flags: str, words: str, code: int) -> None:
    graph = demo_graph(**SMALL)
    tree = tree_of(graph.uri)
    for confirm in ("", " --confirm"):
        assert_refused(cli(f"cleanup {flags}{confirm}", graph.uri), words, code)
    assert tree_of(graph.uri) == tree


@pytest.mark.parametrize(
    "call",
    [
        "cleanup --older-than 5x",
        "cleanup --keep 1 --confirm --time-retained 5",
        "orphans --older-than 5",
        "expire-rows --table node:Person --property joined --older-than 5",
        "expire-rows --table node:Person --property joined --older-than 0s",
        "expire-rows --table node:Person --property joined --older-than 1d --max-share 2",
        "expire-rows --table node:Person --property joined --older-than 1d --max-rows 0",
        "optimize --max-bytes 20XB",
        "optimize --deadline 5",
        "optimize --fence --fence-seconds 5",
        "plan --max-bytes many",
        "recover --grace 15",
        "freeze --ttl 1",
        "hold --table node:Person --ttl soon",
        "history --since 30",
        "history --since 365001d",
        "freeze --ttl 99999999999999d",
        "recover --grace 99999999999999d",
        "backup --max-bytes-per-second 5x /nowhere",
        "optimize --no-such-option",
        "repair --evidence everything",
    ],
)
def test_a_value_that_means_nothing_is_wrong_usage(cli: Cli, tmp_path: Path, call: str) -> None:
    assert_refused(cli(call, str(tmp_path / "none")), "", code=2)
    assert list(tmp_path.iterdir()) == []


def arm(graph: Graph) -> None:
    graph.storage.write(sidecar_path("01ARYZ6S410000000000000000"), b'{"schema_version": 99}')


def stage(graph: Graph) -> None:
    graph.storage.write("_schema.pg.staging", b"node X {}")


def lock(graph: Graph) -> None:
    graph.manifest().create_branch("__schema_apply_lock__")


@pytest.mark.night("combinations")
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
    # A first run, on a copy, imports whatever the verb needs while this interpreter can still be read.
    code = (
        "import os, sys; from omnigraph_ops.cli import main; "
        "main([sys.argv[1], sys.argv[2] + '-copy', *sys.argv[3:]]); "
        "os.setgid(65534); os.setuid(65534); print('=', flush=True); sys.exit(main(sys.argv[1:]))"
    )
    shutil.copytree(root, f"{root}-copy")
    name, *flags = verb.split()
    ran = subprocess.run(
        [sys.executable, "-c", code, name, root, *flags],
        capture_output=True,
        encoding="utf-8",
        check=False,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "HOME": "/tmp", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONUTF8": "1"},
    )
    _, _, err = ran.stderr.partition(f"→ {root} ")
    return Outcome(code=ran.returncode, out=ran.stdout.partition("=\n")[2], err=err)


@pytest.mark.night("all but one")
@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root can become an unprivileged user")
@pytest.mark.parametrize("verb", ["optimize", "repair --confirm", "cleanup --keep 1 --confirm"])
def test_a_graph_without_write_permission_stays_as_it_is(demo_graph: DemoGraph, verb: str) -> None:
    graph = demo_graph(**SMALL, drift_tables=("edge:Knows",))
    # That user may read all of it, whatever the umask is and wherever TMPDIR leads.
    for path in Path(graph.uri).rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    for folder in (Path(graph.uri), *Path(graph.uri).parents):
        if folder.is_relative_to(tempfile.gettempdir()) and folder != Path(tempfile.gettempdir()):
            folder.chmod(0o755)
        elif folder.stat().st_mode & 0o005 != 0o005:
            pytest.skip(f"only its owner gets into {folder}")
    tree = tree_of(graph.uri)
    outcome = as_nobody(verb, graph.uri)
    assert outcome.code == 1, outcome
    assert "Permission denied" in outcome.out + outcome.err
    assert len([line for line in outcome.err.splitlines() if line.startswith("Error: ")]) == 1
    assert "Traceback" not in outcome.err
    assert "unexpected" not in outcome.err
    assert tree_of(graph.uri) == tree


def test_spark_and_fence_are_refused_together(demo_graph: DemoGraph, cli: Cli) -> None:
    graph = demo_graph(node_types=1, loads=1, rows=5)
    assert_refused(cli("optimize --fence", graph.uri, "--spark", "local[1]"), "exclude each other", code=2)


@pytest.mark.parametrize("verb", ["optimize", "backup", "verify", "restore", "orphans"])
@pytest.mark.parametrize("master", ["", "here", "local[x]", "local[0]", "spark:host"])
def test_what_is_no_master_is_refused(demo_graph: DemoGraph, cli: Cli, tmp_path: Path, verb: str, master: str) -> None:
    graph = demo_graph(node_types=1, loads=1, rows=5)
    places = [str(tmp_path / "place")] if verb in {"backup", "restore"} else []
    assert_refused(cli(verb, graph.uri, *places, "--spark", master), "is no Spark master", code=2)


@pytest.mark.parametrize("verb", ["repair --evidence full", "optimize", "orphans"])
def test_spark_that_is_not_installed_is_refused_before_anything_is_done(
    cli: Cli, demo_graph: DemoGraph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    graph = demo_graph(loads=2, rows=8, node_types=1, drift_tables=("node:Person",), drift_kind="delete")
    before = tree_of(graph.uri)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    assert_refused(cli(verb, graph.uri, "--spark", "local[1]"), "--spark local[1] needs pyspark")
    assert tree_of(graph.uri) == before
