"""`expire-rows` in the shell, and which engine it takes: previews, digests, refusals, what a process says."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from omnigraph_ops import serde
from omnigraph_ops.config.settings import Settings
from omnigraph_ops.coordination.holds import hold_path
from omnigraph_ops.engine import EngineConflict, EngineFailure, EngineTimeout, engine_cli
from omnigraph_ops.errors import (
    InvalidInput,
    UnsupportedStamp,
)
from omnigraph_ops.models.rows import RowRetentionPlan
from omnigraph_ops.outcomes import audit_log, history
from omnigraph_ops.stages.expire_rows.apply import engine_of
from tests.conftest import DemoGraph
from tests.support.events import ITEMS, ids, items, stamps, timed
from tests.support.plain import opened
from tests.support.rows import tree_of
from tests.support.shell import Cli, assert_refused
from tests.support.writers import entry_of

PERSON = "node:Person"
SMALL = {"loads": 2, "rows": 12, "node_types": 2}


class TestShell:
    OPTIONS = "--table table:items --property at --older-than 30d"

    def test_a_preview_changes_nothing_and_its_digest_applies_it(self, tmp_path: Path, cli: Cli) -> None:
        root = items(tmp_path, [1, 2, 60])
        seen = cli(f"expire-rows {self.OPTIONS} --json", str(root))
        assert (seen.code, ids(root)) == (0, [0, 1, 2])
        assert "rerun with --confirm" in seen.err
        assert seen.json["tables"][0]["expired"] == 1
        done = cli(f"expire-rows --confirm --plan {seen.json['digest']} --json", str(root))
        assert (done.code, done.json["tables"][0]["rows_removed"], ids(root)) == (0, 1, [0, 1])

    def test_no_row_is_deleted_beside_a_hold_that_cannot_be_read(self, tmp_path: Path, cli: Cli) -> None:
        root = items(tmp_path, [1, 2, 60])
        frozen = cli("freeze --json", str(root)).json["freeze_id"]
        opened(root).storage.write(hold_path(frozen), b"")
        assert_refused(
            cli(f"expire-rows {self.OPTIONS} --max-share 0.9 --confirm", str(root)), f"unfreeze GRAPH {frozen}"
        )
        assert ids(root) == [0, 1, 2]

    def test_a_saved_plan_applies_and_leaves_audit_and_history(self, tmp_path: Path, cli: Cli) -> None:
        root, saved = items(tmp_path / "data", [1, 2, 60]), tmp_path / "plan.json"
        cli(f"expire-rows {self.OPTIONS} --save-plan {saved}", str(root))
        plan = serde.from_json(RowRetentionPlan, saved.read_bytes())
        done = cli(f"expire-rows --confirm --plan {saved}", str(root))
        assert done.code == 0
        assert "1 row deleted" in done.out
        assert "`optimize --purge-deleted` rewrites the fragments and indexes that hold them" in done.out
        entries = [(e.verb, e.event, e.digest) for e in audit_log.log_of(opened(root).storage, "").entries]
        assert entries == [("expire-rows", event, plan.digest) for event in ("started", "applied")]
        (listed,) = history.read_runs(opened(root))
        run = history.read_run(opened(root), listed.header.run_id)
        assert run is not None
        assert (run.header.verb, run.outcome) == ("expire-rows", "succeeded")
        assert [(d.stage, d.digest) for d in run.decisions] == [("expire-rows", plan.digest)]
        assert [(t.table_key, t.stages, t.after.rows) for t in run.tables] == [(ITEMS, ("expire-rows",), 2)]

    def test_a_file_of_policies_works_for_several_tables(self, tmp_path: Path, cli: Cli) -> None:
        root = items(tmp_path / "data", [1, 2, 60])
        timed(root / "more.lance", {"seen": stamps([1, 90])})
        policies = [
            {"table": "table:items", "property": "at", "older_than": "30d"},
            {"table": "table:more", "property": "seen", "older_than": "60d"},
        ]
        (tmp_path / "rows.yaml").write_text(json.dumps({"rows": policies}))
        done = cli(f"expire-rows --policies {tmp_path / 'rows.yaml'} --max-share 0.5 --confirm --json", str(root))
        assert [t["rows_removed"] for t in done.json["tables"]] == [1, 1]

    @pytest.mark.parametrize(
        "text",
        ["rows: [{older_than: 2026-02-30}]", "rows: !!bool x", "[" * 5000, "{"],
        ids=["day", "tag", "deep", "open"],
    )
    def test_a_file_that_is_no_yaml_is_refused(self, tmp_path: Path, cli: Cli, text: str) -> None:
        (tmp_path / "rows.yaml").write_text(text)
        done = cli(f"expire-rows --policies {tmp_path / 'rows.yaml'}", str(items(tmp_path / "data", [1])))
        assert_refused(done, "rows.yaml' is neither YAML nor JSON; nothing was done", code=2)

    def test_a_refused_table_is_an_error_after_the_others_are_done(self, tmp_path: Path, cli: Cli) -> None:
        root = items(tmp_path, [1, 60, 70, 80])
        done = cli(f"expire-rows {self.OPTIONS} --max-share 0.5 --confirm", str(root))
        assert done.code == 1
        assert "did not finish 1 of 1 table, first" in done.err
        assert ids(root) == [0, 1, 2, 3]
        assert cli(f"expire-rows {self.OPTIONS} --max-share 0.8 --confirm", str(root)).code == 0

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            (
                "",
                "(--policies FILE), or in a shell give --table, --property and --older-than",
            ),
            ("--table table:items --policies x", "--policies carries what --table say; leave them out"),
            ("--plan x --max-share 0.9", "carries its own policy"),
        ],
    )
    def test_options_that_do_not_hold_together(self, tmp_path: Path, cli: Cli, options: str, words: str) -> None:
        assert_refused(cli(f"expire-rows {options}", str(items(tmp_path, [1]))), words, code=2)


FAKE = """#!/bin/sh
case "$1" in --version) echo "omnigraph {version}"; exit 0;; esac
{body}
"""


def fake(tmp_path: Path, version: str = "0.9.0", body: str = "echo '{}'") -> str:
    """A program that tells a release and then does what it is told."""
    path = tmp_path / "omnigraph"
    path.write_text(FAKE.format(version=version, body=body))
    path.chmod(0o755)
    return str(path)


def release_for(stamp: int) -> str:
    return {3: "0.7.2", 6: "0.9.0"}[stamp]


class TestEngineBinary:
    def test_no_engine_is_refused_with_what_to_set(self, demo_graph: DemoGraph, cli: Cli, stamp: int) -> None:
        graph = demo_graph(stamp=stamp, **SMALL)
        before = tree_of(graph.uri)
        options = "--table node:Person --property joined --older-than 1d --max-share 1"
        refused = cli(f"expire-rows {options} --confirm --json", graph.uri)
        assert_refused(refused, "in OMNIGRAPH_OPS_ENGINE, in the shell also with --engine")
        assert tree_of(graph.uri) == before

    def test_a_preview_needs_none(self, demo_graph: DemoGraph, cli: Cli, stamp: int) -> None:
        graph = demo_graph(stamp=stamp, **SMALL)
        seen = cli("expire-rows --table node:Person --property joined --older-than 1d --json", graph.uri).json
        table = seen["tables"][0]
        assert 0 < table["expired"] <= table["rows"]
        assert {e["table_key"] for e in table["edges"]} == {"edge:Knows", "edge:WorksAt"}
        persons = graph.open_pinned(entry_of(graph, PERSON))
        assert table["expired"] == persons.count_rows("joined IS NOT NULL")

    def test_the_command_after_a_preview_has_it(
        self, demo_graph: DemoGraph, cli: Cli, stamp: int, tmp_path: Path
    ) -> None:
        graph, engine = demo_graph(stamp=stamp, **SMALL), fake(tmp_path, version=release_for(stamp), body="")
        options = f"--table node:Person --property joined --older-than 1d --max-share 1 --engine {engine}"
        assert cli(f"expire-rows {options}", graph.uri).err.endswith(f"--engine {engine} --confirm\n")

    def test_the_wrong_release_is_refused(self, demo_graph: DemoGraph, cli: Cli, stamp: int, tmp_path: Path) -> None:
        graph = demo_graph(stamp=stamp, **SMALL)
        engine = fake(tmp_path, version=release_for(9 - stamp), body=f"touch {tmp_path}/ran")
        before = tree_of(graph.uri)
        options = "--table node:Person --property joined --older-than 1d --max-share 1 --confirm"
        assert_refused(cli(f"expire-rows {options} --engine {engine}", graph.uri), f"is of stamp {stamp}")
        assert tree_of(graph.uri) == before
        assert not (tmp_path / "ran").exists()

    @pytest.mark.parametrize(
        ("version", "words"), [("0.8.1", "known are the releases"), ("none", "known are the releases")]
    )
    def test_an_unknown_release_is_refused(self, tmp_path: Path, version: str, words: str) -> None:
        with pytest.raises(InvalidInput, match=words):
            engine_cli(fake(tmp_path, version=version), timeout_seconds=120, storage_options=None)

    def test_what_is_no_program_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "text").write_text("text")
        for path in (tmp_path / "none", tmp_path / "text", tmp_path):
            with pytest.raises(InvalidInput, match="not a program"):
                engine_cli(str(path), timeout_seconds=120, storage_options=None)

    def test_its_first_sentence_is_the_error_without_colours(self, tmp_path: Path) -> None:
        body = "printf 'Error:\\n   0: \\033[91mstale view of node:A\\033[0m\\n\\nLocation: x\\n' >&2; exit 1"
        engine = engine_cli(fake(tmp_path, body=body), timeout_seconds=120, storage_options=None)
        with pytest.raises(EngineConflict) as caught:
            engine.merge("/graph", "a", "main")
        assert str(caught.value) == "`omnigraph branch merge` failed: stale view of node:A"

    @pytest.mark.parametrize(
        ("body", "words"),
        [
            ("echo 'omnigraph branch merge → /graph'; kill -9 $$", "signal 9 (SIGKILL)"),
            (
                "echo 'omnigraph branch merge → /graph' >&2; echo 'memory allocation failed' >&2; kill -6 $$",
                "signal 6 (SIGABRT); its last line: memory allocation failed",
            ),
        ],
        ids=["kill", "abort"],
    )
    def test_the_signal_that_killed_it_is_the_error(self, tmp_path: Path, body: str, words: str) -> None:
        engine = engine_cli(fake(tmp_path, body=body), timeout_seconds=120, storage_options=None)
        with pytest.raises(EngineFailure) as caught:
            engine.merge("/graph", "a", "main")
        assert str(caught.value) == f"`omnigraph branch merge` was killed by {words}"

    def test_one_that_hangs_is_stopped_with_its_children(self, tmp_path: Path) -> None:
        engine = engine_cli(fake(tmp_path, body="sleep 600 & wait"), timeout_seconds=0.3, storage_options=None)
        started = time.monotonic()
        with pytest.raises(EngineTimeout, match="did not finish within"):
            engine.create_branch("/graph", "a", "main")
        assert time.monotonic() - started < 300, "the child sleeps for 600 s"

    def test_it_gets_the_credentials_of_the_graph(self, tmp_path: Path) -> None:
        body = f'echo "$AWS_ENDPOINT_URL_S3 $AWS_SECRET_ACCESS_KEY" > {tmp_path}/env'
        options = {"aws_endpoint": "http://s3", "aws_secret_access_key": "hidden", "other": "x"}
        engine_cli(fake(tmp_path, body=body), timeout_seconds=120, storage_options=options).delete_branch("s3://g", "a")
        assert (tmp_path / "env").read_text().split() == ["http://s3", "hidden"]

    def test_the_setting_names_the_engine(self, demo_graph: DemoGraph, tmp_path: Path) -> None:
        graph = demo_graph(stamp=6, settings=Settings(engine=fake(tmp_path)), **SMALL)
        engine = engine_of(graph)
        assert engine is not None
        assert engine.release.version == (0, 9, 0)
        (tmp_path / "old").mkdir()
        old = Settings(engine=fake(tmp_path / "old", version="0.7.2"))
        with pytest.raises(UnsupportedStamp):
            engine_of(graph.with_settings(old))
