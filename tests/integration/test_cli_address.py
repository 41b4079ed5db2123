"""Which graph the command line addresses, and the consent that a graph elsewhere needs."""

from __future__ import annotations

import io
import json
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from omnigraph_ops.cli import main
from omnigraph_ops.graph import Graph
from omnigraph_ops.lance.gateway import LanceGateway
from tests.conftest import DemoGraph
from tests.support.converged import assert_converged, assert_pins_are_heads
from tests.support.edges import when_asked
from tests.support.rows import tree_of
from tests.support.shell import Outcome, assert_refused

SMALL = {"loads": 3, "rows": 8, "node_types": 1}
CLEANUP = "cleanup --keep 1 --confirm"
VERBS = ("check", "recover", "plan", "optimize", "repair", "cleanup --keep 1", CLEANUP, "unlock")


class Shell:
    """The command line with its arguments as they are."""

    def __init__(self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self._capsys, self._monkeypatch = capsys, monkeypatch

    def reads(self, stdin: io.StringIO) -> None:
        """What comes in from now on."""
        self._monkeypatch.setattr("sys.stdin", stdin)

    def must_not_open(self) -> None:
        """Whoever opens the graph for a cleanup fails the test."""
        when_asked(self._monkeypatch, LanceGateway, "open", lambda: pytest.fail("was opened"), times=None)

    def __call__(self, verb: str, *arguments: str) -> Outcome:
        self._capsys.readouterr()
        code = main([*verb.split(), *arguments])
        out, err = self._capsys.readouterr()
        return Outcome(code=code, out=out, err=err)


@pytest.fixture
def shell(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Shell:
    """The command line of this process."""
    return Shell(capsys, monkeypatch)


@pytest.fixture
def graph(demo_graph: DemoGraph) -> Graph:
    """Small, with something to optimize and to collect."""
    return demo_graph(**SMALL)


def cluster(folder: Path, graph: Graph, *ids: str) -> str:
    """A cluster directory with copies of the graph under these ids."""
    (folder / "__cluster").mkdir(parents=True)
    resources = {f"graph.{name}": {"digest": "d"} for name in ids}
    state = {"version": 1, "applied_revision": {"resources": resources}}
    (folder / "__cluster" / "state.json").write_text(json.dumps(state))
    for name in ids:
        shutil.copytree(graph.uri, folder / "graphs" / f"{name}.omni")
    return str(folder)


@pytest.mark.parametrize("verb", VERBS)
def test_a_server_is_refused(shell: Shell, graph: Graph, verb: str) -> None:
    tree = tree_of(graph.uri)
    name = verb.split(maxsplit=1)[0]
    assert_refused(shell(verb, "--server", "prod"), f"`{name}` is a direct (storage-native) command; --server", code=2)
    served = shell(verb, graph.uri, "--server", "https://kb.example.com")
    assert_refused(served, "--server addresses a served graph", code=2)
    assert tree_of(graph.uri) == tree


@pytest.mark.parametrize("verb", VERBS)
def test_there_is_no_actor_to_choose(shell: Shell, graph: Graph, verb: str) -> None:
    tree = tree_of(graph.uri)
    assert_refused(shell(verb, graph.uri, "--as", "alice"), "No such option '--as'", code=2)
    assert tree_of(graph.uri) == tree


def test_store_is_another_way_to_name_the_graph(shell: Shell, graph: Graph) -> None:
    outcome = shell("optimize --json", "--store", graph.uri)
    assert (outcome.code, outcome.json["uri"]) == (0, graph.uri)
    assert f"omnigraph-ops optimize → {graph.uri} (direct, local)" in outcome.err
    assert_converged(graph)


@pytest.mark.slow
@pytest.mark.parametrize("ids", [("kb",), ("kb", "other")])
def test_a_cluster_and_an_id_are_one(shell: Shell, graph: Graph, tmp_path: Path, ids: tuple[str, ...]) -> None:
    folder = cluster(tmp_path / "c", graph, *ids)
    root = f"{folder}/graphs/kb.omni"
    chosen = shell("optimize --json", "--cluster", folder, "--graph", "kb")
    assert (chosen.code, chosen.json["uri"]) == (0, root)
    assert f"→ {root} (direct, local)" in chosen.err
    assert any(t["committed"] for t in chosen.json["tables"])
    for other in ids[1:]:
        assert "to optimize" in shell("plan", "--cluster", folder, "--graph", other).out
    sole = shell("plan --json", "--cluster", folder)
    if len(ids) == 1:
        assert (sole.code, sole.json["uri"]) == (0, root)
    else:
        assert_refused(sole, "has 2 graphs: [kb, other]; pass --graph <id> to select one")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("{g} --store {g}", "a positional URI and --store are mutually exclusive"),
        ("{g} --cluster {c}", "a positional URI and --cluster are mutually exclusive"),
        ("--store {g} --cluster {c}", "--store and --cluster are mutually exclusive"),
        ("{g} --graph kb", "--graph selects a graph within a cluster scope"),
        ("--store {g} --graph kb", "--graph selects a graph within a cluster scope"),
        ("", "no graph addressed"),
        ("--store https://kb.example.com", "server address"),
    ],
)
def test_what_is_not_exactly_one_graph_is_refused(
    shell: Shell, graph: Graph, tmp_path: Path, arguments: str, words: str
) -> None:
    folder = cluster(tmp_path / "c", graph, "kb")
    tree = tree_of(tmp_path)
    for verb in ("check", "optimize", CLEANUP):
        assert_refused(shell(verb, *arguments.format(c=folder, g=graph.uri).split()), words, code=2)
    assert tree_of(tmp_path) == tree


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("--cluster {c} --graph nope", "graph `nope` is not applied in cluster"),
        ("--cluster {g}", "is a graph, not a cluster; nothing was read; leave --cluster out"),
        ("--cluster {g}/nodes", "has no applied state; run `cluster apply` first"),
        ("--cluster {g}/none", "/none; nothing was read; check the path of the cluster"),
        ("--cluster {c}/declared", "run `cluster apply` first; where its cluster.yaml has `storage`, give that"),
        ("{c}", "; name one of its graphs, kb, by `--cluster {c} --graph <id>`, in a graphs file by"),
    ],
)
def test_a_graph_that_its_cluster_does_not_have_is_refused(
    shell: Shell, graph: Graph, tmp_path: Path, arguments: str, words: str
) -> None:
    folder = cluster(tmp_path / "c", graph, "kb")
    declared = Path(folder, "declared")
    declared.mkdir()
    declared.joinpath("cluster.yaml").write_text("storage: s3://bucket/cluster")
    for verb in ("check", "optimize", CLEANUP):
        outcome = shell(verb, *arguments.format(c=folder, g=graph.uri).split())
        assert_refused(outcome, words.replace("{c}", folder))


HOLD = "01ARYZ6S410000000000000000"


class Terminal(io.StringIO):
    """A person at the keyboard."""

    def isatty(self) -> bool:
        return True

    def readline(self, size: int | None = -1, /) -> str:
        line = super().readline(size)
        # What is typed shows up on the screen, with its end of line.
        sys.stderr.write(line)
        return line


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call sees a graph that is not on this machine; opening it works all the same."""
    monkeypatch.setattr("omnigraph_ops.cli.call.locate", lambda target: SimpleNamespace(root=target, is_local=False))


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize("flags", ["--yes", "--yes --json"])
def test_yes_is_consent(shell: Shell, graph: Graph, flags: str) -> None:
    assert shell(f"{CLEANUP} {flags}", graph.uri).code == 0
    assert len(graph.open_head(graph.state().entries[0]).versions()) == 1


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize("typed", ["yes\n", " YES \n", "y\n"])
def test_a_typed_yes_is_consent(shell: Shell, graph: Graph, typed: str) -> None:
    shell.reads(Terminal(typed))
    outcome = shell(CLEANUP, graph.uri)
    assert outcome.code == 0
    assert f"About to run a destructive `cleanup` against {graph.uri} (not local). Type 'yes'" in outcome.err
    assert len(graph.open_head(graph.state().entries[0]).versions()) == 1


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize(
    ("stdin", "flags", "words"),
    [
        pytest.param(Terminal("no\n"), "", "aborted: destructive `cleanup` not confirmed", id="no"),
        pytest.param(Terminal("yess\n"), "", "aborted", id="nearly"),
        pytest.param(Terminal(""), "", "aborted", id="end of input"),
        pytest.param(io.StringIO("yes\n"), "", "pass --yes to confirm", id="a pipe"),
        pytest.param(Terminal("yes\n"), "--json", "pass --yes to confirm", id="json"),
    ],
)
def test_anything_else_deletes_nothing(shell: Shell, graph: Graph, stdin: io.StringIO, flags: str, words: str) -> None:
    tree = tree_of(graph.uri)
    shell.reads(stdin)
    shell.must_not_open()
    assert_refused(shell(f"{CLEANUP} {flags}", graph.uri), words)
    assert tree_of(graph.uri) == tree


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize(
    ("verb", "asked"),
    [
        ("repair --confirm", "`repair`, which publishes the heads of drifted tables,"),
        ("unlock --confirm", "`unlock`, which lets writers in again,"),
        ("freeze --ttl 1h", "`freeze`, which keeps the graph as it is and stops its maintenance,"),
        (f"freeze --extend {HOLD} --ttl 1h", "`freeze`, which keeps the graph as it is and stops its maintenance,"),
        (f"unfreeze {HOLD}", "`unfreeze`, which lets versions go that the freeze keeps,"),
        ("unfreeze --all-mine", "`unfreeze`, which lets versions go that the freeze keeps,"),
        ("hold --table node:Person", "`hold`, which keeps a version from every cleanup,"),
        (f"release {HOLD}", "`release`, which lets versions go that the hold keeps,"),
        ("orphans --older-than 7d --confirm", "destructive `orphans`"),
        ("orphans --restore 01ARYZ6S410000000000000000", "`orphans`, which brings files back,"),
        ("orphans --purge 01ARYZ6S410000000000000000 --confirm", "destructive `orphans`"),
        ("expire-rows --table a --property b --older-than 1d --max-share 0.5 --confirm", "destructive `expire-rows`"),
    ],
)
def test_whatever_a_person_decides_needs_consent_elsewhere(shell: Shell, graph: Graph, verb: str, asked: str) -> None:
    tree = tree_of(graph.uri)
    name, *flags = verb.split()
    for stdin, words in ((io.StringIO(), f"refusing {asked}"), (Terminal("no\n"), f"aborted: {asked}")):
        shell.reads(stdin)
        assert_refused(shell(f"{name} {graph.uri} {' '.join(flags)}"), words)
    assert tree_of(graph.uri) == tree


@pytest.mark.usefixtures("elsewhere")
def test_a_restore_to_elsewhere_needs_consent(shell: Shell, graph: Graph, tmp_path: Path) -> None:
    made = shell("backup --json", graph.uri, str(tmp_path / "backups")).json["backup"]
    place, asked = tmp_path / "place", "`restore`, which makes a graph of a backup,"
    for stdin, words in ((io.StringIO(), f"refusing {asked}"), (Terminal("no\n"), f"aborted: {asked}")):
        shell.reads(stdin)
        assert_refused(shell("restore", made, str(place)), words)
        assert not place.exists()
    assert shell("restore --yes", made, str(place)).code == 0
    assert tree_of(place)


@pytest.mark.usefixtures("elsewhere")
def test_consent_lets_a_freeze_begin_and_end(shell: Shell, graph: Graph) -> None:
    taken = shell("freeze --ttl 1h --json --yes", graph.uri)
    assert taken.code == 0
    shell.reads(Terminal("yes\n"))
    assert shell("unfreeze", graph.uri, taken.json["freeze_id"]).code == 0


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize("verb", ["check", "plan", "health", "holds", "history", "audit", "optimize", "recover"])
def test_what_nobody_decides_asks_nobody(shell: Shell, graph: Graph, verb: str) -> None:
    """Reads, and what runs unattended: a run of it proves what it publishes and changes no row."""
    shell.reads(io.StringIO())
    assert shell(verb, graph.uri).code == 0


@pytest.mark.usefixtures("elsewhere")
def test_consent_publishes_a_repair_and_says_what_it_is(shell: Shell, demo_graph: DemoGraph) -> None:
    graph = demo_graph(drift_tables=("node:Person",), **SMALL)
    shell.reads(Terminal("no\n"))
    refused = shell("repair --confirm", graph.uri)
    assert_refused(refused, "not confirmed; nothing was published")
    assert "About to run `repair`, which publishes the heads of drifted tables, against" in refused.err
    shell.reads(Terminal("yes\n"))
    assert shell("repair --confirm", graph.uri).code == 0
    assert_pins_are_heads(graph)


def test_an_s3_target_counts_as_elsewhere(shell: Shell) -> None:
    shell.must_not_open()
    for address in (["s3://bucket/kb"], ["--store", "s3://bucket/kb"]):
        assert_refused(shell(CLEANUP, *address), "against non-local target s3://bucket/kb without confirmation")
