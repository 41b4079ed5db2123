"""The graphs file: what it accepts, and that every fault is named with its line."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from datetime import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from omnigraph_ops.cli.main import main
from omnigraph_ops.config.graph_entries import ClusterTarget, SettingsOverrides, check_cron, hours_of, variable_of
from omnigraph_ops.config.graphs_file import GraphsFileError, json_schema, load_graphs, read_graphs
from omnigraph_ops.config.settings import Settings, settings_report
from omnigraph_ops.errors import InvalidInput

ROOT = Path(__file__).resolve().parents[3]
EXAMPLE = ROOT / "docs" / "reference" / "graphs.example.yaml"
SCHEMA = ROOT / "docs" / "reference" / "graphs.schema.json"
Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def put(text: str) -> Path:
        path = tmp_path / "graphs.yaml"
        path.write_text(text, encoding="utf-8")
        return path

    return put


def faults(path: Path) -> list[str]:
    """Every problem without the folder of the file."""
    return [str(problem).removeprefix(f"{path.parent}/") for problem in read_graphs(path).problems]


def entry(lines: str) -> str:
    """A file with one graph that says this, from line 5 on."""
    return "version: 1\ngraphs:\n  people:\n    target: s3://lake/people\n" + lines


def test_the_example_is_valid_and_says_what_its_comments_promise() -> None:
    people, orders, embeddings = load_graphs(EXAMPLE)
    assert (people.name, people.target, people.connection) == ("people", "s3://lake/graphs/people.omni", "lake")
    assert orders.target == ClusterTarget(cluster="s3://lake/shop", id="orders")
    assert orders.root == "s3://lake/shop/graphs/orders.omni"
    assert embeddings.schedule is embeddings.connection is None
    assert embeddings.retention.keep is None


def test_defaults_are_merged_below_block_by_block() -> None:
    people, orders, _ = load_graphs(EXAMPLE)
    assert people.approvals.cleanup is None
    assert orders.approvals.cleanup is not None
    assert orders.approvals.approvers == people.approvals.approvers == ("ana", "ben")


def test_a_policy_replaces_the_default_one(write: Write) -> None:
    path = write("version: 1\ndefaults: {retention: {keep: 3}}\n" + entry("    retention: {older_than: 1d}\n")[11:])
    (graph,) = load_graphs(path)
    assert (graph.retention.keep, graph.retention.older_than) == (None, 86_400)


@pytest.mark.parametrize(
    ("lines", "fault"),
    [
        ("    budgets: {}\n", "5: graphs.people.budgets: unknown key"),
        ("    name: other\n", "5: graphs.people.name: unknown key; the name of a graph is its key below graphs"),
        (
            "    tags: [a]\n    retention:\n      keep: -1\n",
            "7: graphs.people.retention.keep: input should be greater than or equal to 0",
        ),
        (
            "    retention: {keep: 4294967296}\n",
            "5: graphs.people.retention.keep: input should be less than 4294967296",
        ),
        (
            "    retention: {expiry: {retain_max: 2}}\n",
            "5: graphs.people.retention.expiry: retain-max 2 must not be below retain-min 10",
        ),
        ("    retention: {keep: '3'}\n", "5: graphs.people.retention.keep: input should be a valid integer"),
        ("    optimize:\n      auto: 1\n", "6: graphs.people.optimize.auto: input should be a valid boolean"),
        (
            "    tags:\n      - a\n      - 2\n",
            "7: graphs.people.tags.1: input should be a valid string, so put it in quotes",
        ),
        (
            "    approvals: {approvers: [5]}\n",
            "5: graphs.people.approvals.approvers.0: input should be a valid string, so put it in quotes",
        ),
        (
            "    retention: {keep: 1, expiry: {}}\n",
            "5: graphs.people.retention: expiry is a policy of its own, never beside keep or older_than",
        ),
        ("    retention: {}\n", "5: graphs.people.retention: one of keep, older_than or expiry is needed"),
        ("    schedule: '0 25 * * *'\n", "5: graphs.people.schedule: '25' does not fit the hour of a cron expression"),
        ("    schedule: '0 0 31 2 *'\n", "5: graphs.people.schedule: '0 0 31 2 *' never comes: no month that it names"),
        ("    timezone: Mars\n", "5: graphs.people.timezone: 'Mars' is not a time zone, as in Europe/Berlin"),
        ("    budget: {deadline: 4y}\n", "5: graphs.people.budget.deadline: unknown duration unit 'y'. Supported: "),
        ("    budget: {deadline: 4}\n", "5: graphs.people.budget.deadline: the duration '4' has no unit: write 4d for"),
        ("    retention: {older_than: 7}\n", "5: graphs.people.retention.older_than: the duration '7' has no unit"),
        ("    retention: {older_than: 59m}\n", "5: graphs.people.retention.older_than: '59m' takes versions that a"),
        (
            "    retention: {expiry: {time_retained: 0s}}\n",
            "5: graphs.people.retention.expiry.time_retained: '0s' ",
        ),
        ("    settings: {plan_ttl: 60}\n", "5: graphs.people.settings.plan_ttl: the duration '60' has no unit"),
        ("    budget: {max_bytes: 4XB}\n", "5: graphs.people.budget.max_bytes: invalid size '4XB'"),
        ("    approvals: {remind_after: 1h}\n", "5: graphs.people.approvals: remind_after needs somebody to notify"),
        (
            "    optimize: {executor: spark, spark_threshold: 1GB}\n",
            "5: graphs.people.optimize: spark_threshold is for executor auto, not for spark",
        ),
        (
            "    settings: {auto_deleted_share: 2.0}\n",
            "5: graphs.people.settings: auto_deleted_share must be at most",
        ),
        ("    settings: {lease_ttl: 2h}\n", "5: graphs.people.settings: lease_ttl must be at most"),
        ("    settings: {policy: tiered}\n", "5: graphs.people.settings.policy: unknown key"),
        ("    alerts: {on_failure: [{notifier: nope}]}\n", "5: graphs.people.alerts.on_failure.0.notifier: string sho"),
        (f"    tags: [{'x' * 101}]\n", "5: graphs.people.tags.0: string should have at most 100 characters"),
        ("    schedule: '*/\u0663 * * * *'\n", "5: graphs.people.schedule: '*/\u0663' does not fit the minute"),
        ('  "2024":\n    target: /g\n', "5: graphs.2024.name: a name begins with a lower-case letter"),
        ("    tags: [a]\n    tags: [b]\n", "6: graphs.people.tags: the key stands twice, first on line 5"),
        ("  people:\n    target: /b\n", "5: graphs.people: the key stands twice, first on line 3"),
        ("  People:\n    target: /b\n", "5: graphs.People.name: a name begins with a lower-case letter"),
        ("  b:\n    target: data/b\n", "6: graphs.b.target: 'data/b' is relative, and every worker"),
        ("  b:\n    target: https://b\n", "6: graphs.b.target: https://b is a server address"),
        ("  b:\n    target: s3://b/a/../g\n", "6: graphs.b.target: s3://b/a/../g has the segment '..'"),
        ('  b:\n    target: " /b"\n', "6: graphs.b.target: ' /b' is relative"),
        ("  b:\n    target: {cluster: s3://b//c, id: a}\n", "6: graphs.b.target.cluster: s3://b//c has an empty"),
        ("  b:\n    target: {cluster: /c, id: ../x}\n", "6: graphs.b.target.id: '../x' is not the id of a graph"),
        ("  b:\n    owner: me\n", "5: graphs.b.target: field required"),
        ("  b:\n    target: {cluster: /c}\n", "6: graphs.b.target.id: field required"),
        ("  b:\n    target: /b\n    2026-01-01: moved\n", "7: graphs.b.2026-01-01: unknown key"),
        ("  b: /somewhere\n", "5: graphs.b: it is a mapping with at least the key target"),
        ("    {\n", "6: not YAML"),
        ("surprise: 1\n", "5: surprise: unknown key; known ones are version, defaults, graphs"),
    ],
)
def test_a_fault_is_named_with_its_line(write: Write, lines: str, fault: str) -> None:
    (found,) = faults(write(entry(lines)))
    assert found.startswith(f"graphs.yaml:{fault}")


@pytest.mark.parametrize(
    "twin",
    [
        "s3://lake/shop/graphs/orders.omni",
        "s3://lake/shop/graphs/orders.omni/",
        "{cluster: s3://lake/shop/, id: orders}",
    ],
)
def test_two_names_for_one_graph_are_a_fault_of_both(write: Write, twin: str) -> None:
    lines = f"  a:\n    target: {{cluster: s3://lake/shop, id: orders}}\n  b:\n    target: {twin}\n"
    path = write(entry(lines))
    assert faults(path) == [
        "graphs.yaml:6: graphs.a.target: the same graph as b",
        "graphs.yaml:8: graphs.b.target: the same graph as a",
    ]
    assert [graph.name for graph in read_graphs(path).graphs] == ["people"]


def test_a_fault_of_one_graph_leaves_the_others(write: Write) -> None:
    path = write(entry("  broken:\n    target: s3://lake/b\n    keep: 3\n"))
    assert [graph.name for graph in read_graphs(path).graphs] == ["people"]
    with pytest.raises(GraphsFileError, match=r"graphs\.yaml:7: graphs\.broken\.keep: unknown key"):
        load_graphs(path)


def test_a_fault_of_the_defaults_is_on_their_line_and_leaves_nothing(write: Write) -> None:
    path = write("version: 1\ndefaults:\n  owner: 3\ngraphs:\n  a: {target: /a}\n")
    assert faults(path) == ["graphs.yaml:3: defaults.owner: input should be a valid string, so put it in quotes"]
    assert read_graphs(path).graphs == ()


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "1: a graphs file is a mapping with the keys version, defaults and graphs"),
        ("[1]", "1: a graphs file is a mapping with the keys version, defaults and graphs"),
        ("graphs: {a: {target: /a}}", "1: version: must be 1"),
        ("version: 1\ngraphs: {}", "2: graphs: no graph is listed"),
        ("version: 1\ngraphs: [a]", "2: graphs: it is a mapping from the name of a graph to what it says about it"),
        ("version: 1\ngraphs:\n  ? [a]\n  : {target: /a}", "3: a key must be a word"),
        ("a: !!python/object:os.x {}", "1: not YAML"),
        ("version: !!bool maybe\ngraphs: {a: {target: /a}}", "1: not YAML"),
        ("version: !!timestamp soon\ngraphs: {a: {target: /a}}", "1: not YAML"),
    ],
)
def test_a_file_of_another_shape(write: Write, text: str, fault: str) -> None:
    (found,) = faults(write(text))
    assert found.startswith(f"graphs.yaml:{fault}")


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    assert faults(tmp_path / "none.yaml") == ["none.yaml:1: the graphs file cannot be read: No such file or directory"]


def test_settings_become_the_variables_of_the_deployment(write: Write) -> None:
    said = "    settings: {exclusive: true, plan_ttl: 2h, concurrency: 3, small_table_bytes: 1MiB, auto_off: [a, b], "
    said += "spark_stages: [orphans, expire-rows]}\n"
    (graph,) = load_graphs(write(entry(said)))
    settings = Settings.from_env(graph.settings.variables())
    assert list(map(str, settings.spark_stages)) == ["orphans", "expire-rows"]
    assert (settings.exclusive, settings.plan_ttl_seconds, settings.concurrency) == (True, 7200.0, 3)
    assert (settings.small_table_bytes, settings.auto_off) == (1024 * 1024, ("a", "b"))


def test_no_stage_of_the_graph_goes_to_spark_although_those_of_the_deployment_do(write: Write) -> None:
    (graph,) = load_graphs(write(entry("    settings: {spark_stages: []}\n")))
    deployment = {"OMNIGRAPH_OPS_SPARK_STAGES": "repair"}
    assert Settings.from_env({**deployment, **graph.settings.variables()}).spark_stages == ()


def test_a_stage_that_has_no_job_is_refused_in_the_file(write: Write) -> None:
    (fault,) = faults(write(entry("    settings: {spark_stages: [orphan]}\n")))
    assert "spark_stages" in fault
    assert "must be repair, orphans or expire-rows" in fault


def test_every_setting_of_the_deployment_can_be_said_per_graph() -> None:
    known = {setting.variable for setting in settings_report({}).settings}
    elsewhere = {f"OMNIGRAPH_OPS_{name}" for name in ("POLICY", "CUTOFF", "SPARK_THRESHOLD_BYTES", "TEXT_INDEXERS")}
    assert {variable_of(name) for name in SettingsOverrides.model_fields} == known - elsewhere


@pytest.mark.parametrize(
    "text",
    [
        *("*/5 1-3,7 * jan-mar mon", "@daily", "0 0 1 1 7", "*/70 * * * *"),
        # In a leap year; in every other month of those named; on every Monday of February too.
        *("0 0 29 feb *", "0 0 31 1-12/6 *", "0 0 31 2 mon"),
        # Round the end of the week, the year, the hour.
        *("0 1 * * sat-sun", "0 0 30 nov-feb *", "50-10/5 * * * *"),
        # The second Friday, the last day of the month.
        *("0 0 * * fri#2", "0 0 l * *"),
    ],
)
def test_cron_expressions(text: str) -> None:
    check_cron(text)


@pytest.mark.parametrize(
    "text",
    [
        *("", "* * * *", "60 * * * *", "*/0 * * * *", "*/00 * * * *", "a * * * *", "@never"),
        # A minute at random, other in every parse of the DAG; seconds.
        *("r 0 * * *", "R(10-20) 0 * * *", "0 0 * * * 30"),
    ],
)
def test_what_is_no_cron_expression(text: str) -> None:
    with pytest.raises(InvalidInput):
        check_cron(text)


@pytest.mark.parametrize("text", ["0 0 31 2 *", "0 0 30,31 FEB *,1", "0 0 31 4,6,9-11/2 *", "0 0 30/1 2/12 *"])
def test_a_date_that_never_comes_is_no_schedule(text: str) -> None:
    with pytest.raises(InvalidInput, match="never comes"):
        check_cron(text)


def test_what_was_read_is_parsed_once_and_never_stale(write: Write) -> None:
    first = read_graphs(write(entry("    owner: ana\n")))
    assert read_graphs(write(entry("    owner: ana\n"))) is first
    assert read_graphs(write(entry("    owner: ben\n"))).graphs[0].owner == "ben"


def test_hours_of_the_day() -> None:
    assert hours_of("22:00-06:30") == (time(22), time(6, 30))
    for text in ("22-6", "24:00-01:00", "01:00-01:00", ""):
        with pytest.raises(InvalidInput):
            hours_of(text)


def test_the_published_schema_is_the_generated_one() -> None:
    assert json.loads(SCHEMA.read_text(encoding="utf-8")) == json_schema(), (
        "omnigraph-ops graphs --schema > docs/reference/graphs.schema.json"
    )


def test_the_schema_takes_the_example_and_refuses_what_the_reader_refuses() -> None:
    import jsonschema
    import yaml

    validator = jsonschema.Draft202012Validator(json_schema())
    example: Any = yaml.safe_load(EXAMPLE.read_text(encoding="utf-8"))
    assert list(validator.iter_errors(example)) == []
    example["graphs"]["people"]["budgets"] = {}
    example["graphs"]["orders"]["window"]["quiet_for"] = 10
    assert len(list(validator.iter_errors(example))) == 2


def test_the_verb_lists(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["graphs", str(EXAMPLE)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"graphs {EXAMPLE} — 3 graphs, no faults"
    assert lines[4].split()[:2] == ["people", "s3://lake/graphs/people.omni"]
    assert "keep 10, older than 7d" in lines[4]
    assert main(["graphs", str(EXAMPLE), "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [g["name"] for g in listed["graphs"]] == ["people", "orders", "embeddings"]


def test_the_verb_names_every_fault(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["graphs", str(write(entry("    a: 1\n    b: 2\n")))]) == 1
    assert "graphs.yaml:5: graphs.people.a: unknown key\n" in (error := capsys.readouterr().err)
    assert "graphs.yaml:6: graphs.people.b: unknown key\n" in error
    assert main(["graphs"]) == 2


@pytest.mark.slow
def test_reading_a_file_imports_nothing_heavy() -> None:
    script = (
        "import sys\nfrom omnigraph_ops.config.graphs_file import load_graphs\n"
        f"load_graphs({str(EXAMPLE)!r})\n"
        "print(sorted({'airflow', 'lance', 'pyarrow', 'pyspark', 'pandas', 's3fs', 'fsspec'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def bomb(link: str, last: str) -> str:
    """Nine lines, each of which names the one above it ten times: a thousand million parts."""
    names = "abcdefghi"
    lines = [f"{name}: &{name} {link.format(','.join([f'*{above}'] * 10))}" for above, name in pairwise(names)]
    return "\n".join([f"a: &a {last}", *lines]) + "\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        pytest.param(bomb("[{}]", "[x, x, x]"), 6, "becomes too large", id="alias bomb"),
        pytest.param(bomb("{{<<: [{}]}}", "{x: 1}"), 6, "becomes too large", id="merge bomb"),
        pytest.param(f"a: &a {'x' * 100_000}\nb: [{'*a,' * 1000}]\n", 2, "becomes too large", id="one value"),
        pytest.param("version: 1\na: &a\n  b: *a\n", 3, "nested too deeply", id="an alias of itself"),
        pytest.param("version: 1\na: " + "[" * 100_000, 2, "nested too deeply", id="deep"),
        pytest.param("version: 1\n" + "- a\n" * 2, 2, "not YAML", id="broken"),
        pytest.param("a:\n" + "- a\n" * 300_000, 200_000, "more than 200,000 parts", id="many parts"),
        pytest.param("#" * (4 * 1024 * 1024 + 1), 1, "more than 4,194,304 characters", id="long"),
    ],
)
def test_a_file_that_becomes_too_large_is_refused_with_its_line(write: Write, text: str, line: int, words: str) -> None:
    (found,) = read_graphs(write(text)).problems
    assert words in found.message
    assert abs(found.line - line) <= 3
    assert not read_graphs(write(text)).graphs


def test_ordinary_aliases_and_merge_keys_go_on(write: Write) -> None:
    text = (
        "version: 1\ndefaults:\n  approvals: &asked {approvers: [ana]}\ngraphs:\n"
        "  a: &base\n    target: /a\n    retention: {keep: 3}\n"
        "  b:\n    <<: *base\n    target: /b\n    approvals: *asked\n"
    )
    one, two = load_graphs(write(text))
    assert (two.root, two.retention, two.approvals.approvers) == ("/b", one.retention, ("ana",))


def test_many_graphs_are_an_ordinary_file(write: Write) -> None:
    lines = "".join(f"  g{n}:\n    <<: *d\n    target: /data/g{n}\n" for n in range(500))
    found = load_graphs(write(f"version: 1\ngraphs:\n  base: &d\n    target: /base\n    owner: me\n{lines}"))
    assert (len(found), found[-1].owner) == (501, "me")
