"""What each account of the store is enough for: docs/security.md, done.

Comes before the nights: they begin when nobody has published for five minutes, and this is elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType

import pytest

from tests.stack.graphs import account, listing, open_as, seeder, shell
from tests.stack.running import Stack
from tests.support.rows import rows_of

BUCKET = "least"
GRAPH = f"s3://{BUCKET}/kb.omni"
WRITER = {"S3_WRITER_ACCESS_KEY": "writer", "S3_WRITER_SECRET_KEY": "writer-secret"}
OWN_FOLDERS = ("kb.omni/__maintenance/*", "kb.omni/__recovery/*")
REMOVE = ("cleanup", GRAPH, "--keep", "1", "--older-than", "0s")


@pytest.fixture(scope="module")
def seed(stack: Stack) -> Iterator[ModuleType]:
    """A graph in a bucket of its own, and an account that may not delete outside of our own folders."""
    with pytest.MonkeyPatch.context() as environment:
        module = seeder(stack, environment, **WRITER)
        module.ensure_account("WRITER")
        module.ensure_bucket(BUCKET)
        module.seed(BUCKET, "kb.omni")
        rights = {**module.LOOKS, "/*": ("s3:GetObject", "s3:PutObject")}
        deletes = {f"/{folder}": ("s3:DeleteObject",) for folder in OWN_FOLDERS}
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


@pytest.mark.parametrize(
    "words", [("optimize", GRAPH), (*REMOVE, "--confirm", "--yes"), ("unlock", GRAPH, "--confirm")]
)
def test_reading_changes_nothing_and_says_so(stack: Stack, seed: ModuleType, words: tuple[str, ...]) -> None:
    before = listing(seed, BUCKET)
    done = shell(account(stack, "READER"), *words)
    assert done.returncode == 1
    assert "Error: " in done.stderr
    assert "Access Denied" in done.stderr + done.stdout
    assert "Traceback" not in done.stderr
    assert listing(seed, BUCKET) == before


def test_optimize_deletes_only_in_our_own_folders_and_cleanup_says_that_it_may_not(
    stack: Stack, seed: ModuleType
) -> None:
    variables = {**stack.variables, **WRITER}
    writer = {**account(stack, "READER"), "AWS_ACCESS_KEY_ID": variables["S3_WRITER_ACCESS_KEY"]}
    writer["AWS_SECRET_ACCESS_KEY"] = variables["S3_WRITER_SECRET_KEY"]
    before = rows_of(open_as(stack, "READER", GRAPH))
    assert (done := shell(writer, "optimize", GRAPH)).returncode == 0, done.stdout + done.stderr
    refused = shell(writer, *REMOVE, "--confirm", "--yes")
    assert refused.returncode == 1
    assert "may this account delete objects?" in refused.stdout + refused.stderr
    assert shell(writer, "check", GRAPH).returncode == 0
    assert rows_of(open_as(stack, "READER", GRAPH)) == before
    assert shell(account(stack, "MAINTAINER"), *REMOVE, "--confirm", "--yes").returncode == 0
    assert rows_of(open_as(stack, "READER", GRAPH)) == before
