"""What each account of the store is enough for: docs/reference/rights.md, done.

Comes before the nights: they begin when nobody has published for five minutes, and this is elsewhere.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from omnigraph_ops.coordination.fence import fenced
from omnigraph_ops.coordination.holds import read_hold, write_hold
from omnigraph_ops.stages.freeze.take import freeze_graph
from tests.stack.graphs import account, listing, open_as, seeder, shell
from tests.stack.running import Stack
from tests.support.rows import rows_of
from tests.support.tables import PERSON
from tests.support.writers import delete_first, drift, entry_of

BUCKET = "least"
GRAPH = f"s3://{BUCKET}/kb.omni"
WRITER = {"S3_WRITER_ACCESS_KEY": "writer", "S3_WRITER_SECRET_KEY": "writer-secret"}
OURS = (
    "kb.omni/__maintenance/*",
    "kb.omni/__recovery/*",
    "kb.omni/*/_refs/tags/omnigraph-ops.freeze.*",
)
REMOVE = ("cleanup", GRAPH, "--keep", "1")


@pytest.fixture(scope="module")
def seed(stack: Stack) -> Iterator[ModuleType]:
    """A graph in a bucket of its own, and an account that may delete only what is ours."""
    with pytest.MonkeyPatch.context() as environment:
        module = seeder(stack, environment, **WRITER)
        module.ensure_account("WRITER")
        module.ensure_bucket(BUCKET)
        module.seed(BUCKET, "kb.omni")
        rights = {**module.LOOKS, "/*": ("s3:GetObject", "s3:PutObject")}
        deletes = {f"/{place}": ("s3:DeleteObject",) for place in OURS}
        may = module.allow(BUCKET, "writer", {**rights, **deletes})
        module.client("ROOT").put_bucket_policy(Bucket=BUCKET, Policy=module.policy(BUCKET, *may))
        yield module


@pytest.mark.parametrize("verb", ["check", "plan", "health", "repair", "cleanup", "orphans", "history", "audit"])
def test_reading_is_enough_to_look_and_to_plan(stack: Stack, seed: ModuleType, verb: str) -> None:
    before = listing(seed, BUCKET)
    words = REMOVE if verb == "cleanup" else (verb, GRAPH)
    done = shell(account(stack, "READER"), *words)
    assert done.returncode == 0, done.stderr
    assert listing(seed, BUCKET) == before


@pytest.mark.parametrize("words", [("optimize", GRAPH), (*REMOVE, "--confirm", "--yes")])
def test_reading_changes_nothing_and_says_so(stack: Stack, seed: ModuleType, words: tuple[str, ...]) -> None:
    assert_refused(stack, seed, words)


def test_whoever_may_only_read_may_ask_for_a_lock_and_not_lift_it(stack: Stack, seed: ModuleType) -> None:
    words = ("unlock", GRAPH, "--confirm", "--force", "--yes")
    asked = shell(account(stack, "READER"), *words)
    assert asked.returncode == 0, asked.stderr
    with fenced(open_as(stack, "MAINTAINER", GRAPH), drain_seconds=0):
        assert_refused(stack, seed, words)


def assert_refused(stack: Stack, seed: ModuleType, words: tuple[str, ...]) -> None:
    before = listing(seed, BUCKET)
    done = shell(account(stack, "READER"), *words)
    assert done.returncode == 1
    assert "Error: " in done.stderr
    assert "Access Denied" in done.stderr + done.stdout
    assert "Traceback" not in done.stderr
    assert listing(seed, BUCKET) == before


def writer_of(stack: Stack) -> dict[str, str]:
    """The variables of the account that may delete only what is ours. Pure."""
    keys = {"AWS_ACCESS_KEY_ID": "S3_WRITER_ACCESS_KEY", "AWS_SECRET_ACCESS_KEY": "S3_WRITER_SECRET_KEY"}
    return account(stack, "READER") | {name: WRITER[key] for name, key in keys.items()}


def ended_freeze(stack: Stack) -> str:
    """A freeze of the maintainer whose time is over; its id. Writes."""
    graph = open_as(stack, "MAINTAINER", GRAPH)
    freeze_id = freeze_graph(graph).freeze_id
    hold = read_hold(graph.storage, freeze_id)
    assert hold is not None
    write_hold(graph.storage, replace(hold, expires_at=time.time() - 1))
    return freeze_id


def done_as(who: dict[str, str], *words: str) -> str:
    """What a verb prints that went well."""
    done = shell(who, *words)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_who_may_delete_what_is_ours_freezes_holds_and_backs_up(stack: Stack, seed: ModuleType, tmp_path: Path) -> None:
    writer, reader = writer_of(stack), account(stack, "READER")
    freeze_id = str(json.loads(done_as(writer, "freeze", GRAPH, "--json", "--yes"))["freeze_id"])
    assert any(freeze_id in key for key in listing(seed, BUCKET))
    before = listing(seed, BUCKET)
    assert "_versions" in done_as(reader, "files", GRAPH, "--freeze", freeze_id)
    assert listing(seed, BUCKET) == before
    done_as(writer, "unfreeze", GRAPH, freeze_id, "--yes")
    hold_id = str(json.loads(done_as(writer, "hold", GRAPH, "--table", PERSON, "--json", "--yes"))["hold_id"])
    done_as(writer, "release", GRAPH, hold_id, "--yes")
    backup = str(json.loads(done_as(writer, "backup", GRAPH, str(tmp_path), "--json"))["backup"])
    before = listing(seed, BUCKET)
    done_as(reader, "verify", backup, "--graph", GRAPH)
    assert listing(seed, BUCKET) == before
    assert not [key for key in before if "/_refs/tags/omnigraph-ops.freeze." in key]


def test_who_may_delete_what_is_ours_recovers_and_repairs(stack: Stack, seed: ModuleType) -> None:
    writer = writer_of(stack)
    done_as(writer, "recover", GRAPH)
    graph = open_as(stack, "MAINTAINER", GRAPH)
    drift(graph, PERSON, delete_first())
    newest = graph.open_head(entry_of(graph, PERSON)).version
    done_as(writer, "repair", GRAPH, "--confirm", "--force", "--yes")
    assert entry_of(open_as(stack, "READER", GRAPH), PERSON).version == newest


def test_optimize_deletes_only_what_is_ours_and_cleanup_says_that_it_may_not(stack: Stack, seed: ModuleType) -> None:
    writer = writer_of(stack)
    before = rows_of(open_as(stack, "READER", GRAPH))
    ended = ended_freeze(stack)
    looked = shell(account(stack, "READER"), "holds", GRAPH)
    assert looked.returncode == 0, looked.stderr
    assert "tags stay until a run that may delete them comes by" in looked.stderr
    assert any(ended in key for key in listing(seed, BUCKET))
    assert (done := shell(writer, "optimize", GRAPH)).returncode == 0, done.stdout + done.stderr
    assert not [key for key in listing(seed, BUCKET) if ended in key]
    refused = shell(writer, *REMOVE, "--confirm", "--yes")
    assert refused.returncode == 1
    assert "although no delete failed; no row is lost; give this account the rights" in refused.stdout + refused.stderr
    assert shell(writer, "check", GRAPH).returncode == 0
    assert rows_of(open_as(stack, "READER", GRAPH)) == before
    assert shell(account(stack, "MAINTAINER"), *REMOVE, "--confirm", "--yes").returncode == 0
    assert rows_of(open_as(stack, "READER", GRAPH)) == before
