"""The lineage of stamp 3: which commit is the head, and how forks become one line."""

from __future__ import annotations

import random
from datetime import datetime, timedelta
from typing import Any

import pytest

from omnigraph_ops.graph.stamp3 import above, head_of, straightened

NOON = datetime(2026, 1, 1, 12)


def row(name: str, parent: str | None, version: int, second: int = 0) -> dict[str, Any]:
    return {
        "graph_commit_id": name,
        "parent_commit_id": parent,
        "manifest_version": version,
        "created_at": NOON + timedelta(seconds=second),
    }


def apply(rows: list[dict[str, Any]], moved: dict[str, str]) -> list[dict[str, Any]]:
    return [r | {"parent_commit_id": moved.get(r["graph_commit_id"], r["parent_commit_id"])} for r in rows]


@pytest.mark.parametrize(("version", "second"), [(9, 60), (7, 60), (9, -60), (8, 0), (7, -60)])
def test_a_row_that_is_appended_is_the_head_whatever_its_clock_and_publish_say(version: int, second: int) -> None:
    known = [row("a", None, 7), row("z", "a", 8)]
    new = {"graph_commit_id": "b"} | above(head_of(known), version, NOON + timedelta(seconds=second))
    assert new["parent_commit_id"] == "z"
    assert head_of([*known, new]) == new


def test_the_first_row_has_no_parent() -> None:
    assert above(head_of([]), 3, NOON) == {"parent_commit_id": None, "manifest_version": 3, "created_at": NOON}


@pytest.mark.parametrize(
    ("rows", "moved"),
    [
        ([row("a", None, 1), row("b", "a", 2), row("c", "b", 3)], {}),
        # Ours, then the engine's of the same version with the parent that it had read before.
        ([row("a", None, 1), row("o", "a", 2, 1), row("e", "a", 2, 2), row("n", "e", 3)], {"e": "o"}),
        # The engine's of an older version: what came after followed ours.
        ([row("a", None, 1), row("o", "a", 3, 1), row("e", "a", 2, 2), row("n", "o", 4)], {"o": "e"}),
        ([row("a", None, 1), *(row(n, "a", 2, s) for s, n in enumerate("xyz"))], {"y": "x", "z": "y"}),
    ],
)
def test_forks_become_one_line(rows: list[dict[str, Any]], moved: dict[str, str]) -> None:
    assert straightened(rows) == moved


@pytest.mark.parametrize("seed", range(50))
def test_any_tree_becomes_one_line_that_keeps_every_commit(seed: int) -> None:
    chance = random.Random(seed)
    rows = [row("c0", None, 1)]
    for n in range(1, 30):
        parent = chance.choice(rows[-4:])
        rows.append(row(f"c{n}", parent["graph_commit_id"], parent["manifest_version"] + chance.randrange(2), n))
    after = apply(rows, straightened(rows))
    parents = [r["parent_commit_id"] for r in after]
    assert len(set(parents)) == len(parents) == 30
    by_parent = {r["parent_commit_id"]: r["graph_commit_id"] for r in after}
    at, seen = None, 0
    while at in by_parent:
        at, seen = by_parent[at], seen + 1
    assert seen == 30
    assert straightened(after) == {}
