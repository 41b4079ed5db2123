"""What decides which data goes is what the person wrote: no default, no young age, the command after a preview."""

from __future__ import annotations

import shlex
from pathlib import Path

import click
import pytest

from omnigraph_ops import serde
from omnigraph_ops.cli import parsing  # noqa: F401 - declares them
from omnigraph_ops.cli.call import cli as cli_group
from omnigraph_ops.coordination import sealed
from omnigraph_ops.graph import Graph
from omnigraph_ops.models.cleanup import CleanupPlan, RetentionPolicy
from omnigraph_ops.models.orphans import OrphansPlan
from omnigraph_ops.stages.cleanup.plan import plan_cleanup
from omnigraph_ops.stages.orphans.plan import plan_orphans
from tests.conftest import DemoGraph
from tests.support.events import ids, items
from tests.support.orphans import PERSON, plant, put
from tests.support.rows import tree_of
from tests.support.shell import Cli, Outcome, assert_refused
from tests.support.writers import entry_of

ROWS = "expire-rows --table table:items --property at --older-than 30d"
EXPIRE = "--retain-min 1 --time-retained 1h --expire-limit 3"


@pytest.fixture
def graph(demo_graph: DemoGraph) -> Graph:
    return demo_graph(loads=6, rows=6, node_types=1)


def versions(graph: Graph) -> int:
    """How many versions of the people are there."""
    return len(graph.open_head(entry_of(graph, PERSON)).versions())


def printed(cli: Cli, preview: Outcome) -> Outcome:
    """Run the command that a preview ends with."""
    assert preview.code == 0, preview
    _, found, command = preview.err.splitlines()[-1].partition(": omnigraph-ops ")
    assert found, preview.err
    verb, root, *flags = shlex.split(command)
    return cli(verb, root, *flags, "--json")


@pytest.mark.parametrize(
    ("call", "missing"),
    [
        ("cleanup --expire", "--retain-min 10 --time-retained 1h --expire-limit 10"),
        ("cleanup --retain-max 2 --retain-min 1", "--time-retained 1h --expire-limit 10"),
        ("orphans", "--older-than 7d"),
        ("orphans --quarantine", "--older-than 7d"),
        (ROWS, "--max-share 0.5"),
    ],
)
def test_confirm_decides_by_no_default(graph: Graph, cli: Cli, call: str, missing: str) -> None:
    plant(graph)
    tree = tree_of(graph.uri)
    refused = cli(f"{call} --confirm", graph.uri)
    assert_refused(refused, f"; nothing was deleted; add {missing}, or bind it to a saved preview", code=2)
    assert tree_of(graph.uri) == tree


@pytest.mark.parametrize("call", ["cleanup --keep 1", "orphans --older-than 7d", ROWS, "repair"])
def test_a_plan_is_saved_or_applied_but_not_both(graph: Graph, cli: Cli, tmp_path: Path, call: str) -> None:
    more = " --max-share 1" if call is ROWS else ""
    outcome = cli(f"{call}{more} --confirm --save-plan {tmp_path / 'plan'}", graph.uri)
    assert_refused(outcome, "apply it afterwards with --plan FILE --confirm", code=2)
    assert not (tmp_path / "plan").exists()


@pytest.mark.parametrize(
    "terms", ["--keep 2", EXPIRE + " --retain-max 2", "--keep 1 --between-pins --table node:Person"]
)
def test_cleanups_preview_ends_with_the_command_that_applies_its_policy(graph: Graph, cli: Cli, terms: str) -> None:
    listed = cli(f"cleanup {terms} --json", graph.uri).json
    preview = cli(f"cleanup {terms}", graph.uri)
    assert preview.err.endswith(f"this policy: omnigraph-ops cleanup {graph.uri} {terms} --confirm\n")
    done = printed(cli, preview)
    assert (done.code, done.json["versions_removed"]) == (0, sum(len(t["versions"]) for t in listed["tables"]))
    assert done.json["versions_removed"] > 0


def test_the_digest_of_a_preview_that_is_not_kept_is_refused_with_what_keeps_it(graph: Graph, cli: Cli) -> None:
    digest = cli("cleanup --keep 2 --json", graph.uri).json["digest"]
    kept = "a preview of the shell is kept only with --save-plan FILE: preview again with it"
    assert_refused(cli(f"cleanup --plan {digest} --confirm --json", graph.uri), kept)
    assert_refused(cli(f"expire-rows --plan {digest}", graph.uri), "nothing was done; preview again")


def test_the_defaults_of_an_expiry_are_in_the_command(graph: Graph, cli: Cli) -> None:
    preview = cli("cleanup --expire", graph.uri)
    assert "retain at least 10, time retained 3600s" in preview.err
    assert preview.err.endswith("--retain-min 10 --time-retained 1h --expire-limit 10 --confirm\n")
    assert printed(cli, preview).code == 0


def test_a_saved_preview_is_applied_as_it_is(graph: Graph, cli: Cli, tmp_path: Path) -> None:
    saved = tmp_path / "my plan.json"
    preview = cli("cleanup --keep 2", graph.uri, "--save-plan", str(saved))
    assert preview.err.endswith(
        f"to carry out this plan: omnigraph-ops cleanup {graph.uri} --plan '{saved}' --confirm\n"
    )
    assert serde.from_json(CleanupPlan, saved.read_bytes()).policy.keep_versions == 2
    assert printed(cli, preview).code == 0
    assert versions(graph) == 2


def test_the_command_has_the_bound_on_the_fence(graph: Graph, cli: Cli) -> None:
    preview = cli("cleanup --keep 2 --fence --fence-seconds 90s", graph.uri)
    assert preview.err.endswith("--keep 2 --fence --fence-seconds 90s --confirm\n")
    assert printed(cli, preview).code == 0


@pytest.mark.slow
def test_orphans_preview_ends_with_the_command_that_applies_it(graph: Graph, cli: Cli, tmp_path: Path) -> None:
    plant(graph)
    preview = cli("orphans", graph.uri)
    assert preview.err.endswith(f"this policy: omnigraph-ops orphans {graph.uri} --older-than 7d --confirm\n")
    aside = cli("orphans --quarantine", graph.uri)
    assert aside.err.endswith(
        f"this policy: omnigraph-ops orphans {graph.uri} --older-than 7d --quarantine --confirm\n"
    )
    saved = tmp_path / "plan.json"
    assert cli("orphans", graph.uri, "--save-plan", str(saved)).err.endswith(f"--plan {saved} --confirm\n")
    assert len(serde.from_json(OrphansPlan, saved.read_bytes()).files) == 8
    assert printed(cli, preview).json["files_removed"] == 8
    assert cli("orphans --save-plan x --plan", graph.uri, str(saved)).code == 2


def test_expiring_rows_ends_with_the_command_that_applies_that_preview(tmp_path: Path, cli: Cli) -> None:
    root = items(tmp_path, [1, 2, 60])
    preview = cli(ROWS, str(root))
    assert "at most 50% of a table" in preview.out
    assert printed(cli, preview).code == 0
    assert ids(root) == [0, 1]


@pytest.mark.parametrize("age", ["--older-than 59m", f"{EXPIRE.replace('1h', '0s')} --retain-max 2"])
def test_a_cleanup_of_young_versions_needs_a_switch(graph: Graph, cli: Cli, age: str) -> None:
    tree = tree_of(graph.uri)
    for confirm in ("", " --confirm", " --confirm --yes"):
        assert_refused(cli(f"cleanup {age}{confirm}", graph.uri), "give at least 1h, or pass --allow-young")
    assert tree_of(graph.uri) == tree
    preview = cli(f"cleanup {age} --allow-young", graph.uri)
    assert preview.err.splitlines()[-1].endswith("--allow-young --confirm")
    assert printed(cli, preview).code == 0


def test_a_saved_plan_for_young_versions_needs_it_too(graph: Graph, cli: Cli, tmp_path: Path) -> None:
    saved = tmp_path / "plan.json"
    assert cli("cleanup --older-than 0s --allow-young", graph.uri, "--save-plan", str(saved)).code == 0
    assert_refused(cli("cleanup --confirm --plan", graph.uri, str(saved)), "pass --allow-young")
    assert cli("cleanup --confirm --allow-young --plan", graph.uri, str(saved)).code == 0
    assert versions(graph) == 1


def test_keeping_by_number_alone_has_no_age(graph: Graph, cli: Cli) -> None:
    assert cli("cleanup --keep 1 --confirm", graph.uri).code == 0
    assert versions(graph) == 1


@pytest.mark.slow
def test_a_young_orphan_keeps_its_switch_in_the_command(graph: Graph, cli: Cli) -> None:
    young = put(graph, f"{entry_of(graph, PERSON).path}/data/young.lance", days=0.1)
    preview = cli("orphans --older-than 1h --allow-young", graph.uri)
    assert preview.err.endswith("--older-than 1h --allow-young --confirm\n")
    assert printed(cli, preview).json["files_removed"] == 1
    assert not graph.storage.exists(young)


@pytest.mark.parametrize("young", ["cleanup", "orphans"])
def test_a_young_plan_that_is_kept_needs_the_switch_too(graph: Graph, cli: Cli, young: str) -> None:
    plant(graph)
    plan = plan_cleanup(graph, RetentionPolicy(older_than_secs=0, keep_versions=1)) if young == "cleanup" else None
    kept = sealed.store(graph.storage, plan or plan_orphans(graph, older_than_seconds=7200))
    tree = tree_of(graph.uri)
    for confirm in ("", " --confirm"):
        refused = cli(f"{young} --plan {kept.digest}{confirm}", graph.uri)
        assert_refused(refused, "or pass --allow-young")
    assert tree_of(graph.uri) == tree
    assert cli(f"{young} --plan {kept.digest} --allow-young --confirm", graph.uri).code == 0


def planned_options() -> list[tuple[str, str]]:
    """Every option with a value of every stage that plans first, with a verb and terms that would do."""
    terms = {
        "repair": "",
        "cleanup": "--keep 1 --older-than 1s --allow-young",
        "orphans": "--older-than 7d",
        "expire-rows": "--table node:Person --property joined --older-than 30d --max-share 1",
    }
    found = []
    for name, words in terms.items():
        for param in cli_group.commands[name].params:
            if isinstance(param, click.Option) and not param.is_flag and not param.hidden:
                found.append((f"{name} {words} --confirm", param.opts[0]))
    return found


@pytest.mark.slow
@pytest.mark.parametrize(("call", "option"), planned_options())
def test_an_empty_value_is_refused_and_never_taken_for_none(graph: Graph, cli: Cli, call: str, option: str) -> None:
    """As in `--older-than "$AGE"` in a script where nobody set AGE."""
    tree = tree_of(graph.uri)
    refused = cli(call, graph.uri, option, "")
    assert (refused.code != 0, refused.out) == (True, ""), refused
    assert tree_of(graph.uri) == tree
