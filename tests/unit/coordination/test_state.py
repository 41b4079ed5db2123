"""Places below `__maintenance/`: each is known, and no other module spells one."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from omnigraph_ops.coordination.state import PLACES, Kept, is_unfinished, kept_by

ROOT = Path(__file__).resolve().parents[3]
ULID = "01ARYZ6S410000000000000000"
LEASE = f"-{7:020d}.json"
KNOWN = {
    f"quarantine/{ULID}/nodes/x/data/y.lance": (Kept.ALWAYS, ""),
    "history.lance/_versions/1.manifest": (Kept.ALWAYS, ""),
    f"lease{LEASE}": (Kept.ALWAYS, ""),
    f"expire-rows{LEASE}": (Kept.ALWAYS, ""),
    f"restore-turn{LEASE}": (Kept.ALWAYS, ""),
    f"runs/lease{LEASE}": (Kept.ALWAYS, ""),
    f"fences/{'0' * 32}.json": (Kept.ALWAYS, ""),
    "fence.json": (Kept.ALWAYS, ""),
    "restoring.json": (Kept.ALWAYS, ""),
    f"probe-{'0' * 32}": (Kept.NEVER, ""),
    f"operations/{ULID}.json": (Kept.NEVER, ""),
    "operations/not-an-id.json": (Kept.ALWAYS, ""),
    f"holds/{ULID}.json": (Kept.BY_HOLD, ULID),
    f"freezes/{ULID}/_schema.pg": (Kept.BY_HOLD, ULID),
    f"clones/{ULID}.lance/data/x.lance": (Kept.BY_HOLD, ULID),
    f"removals/{ULID}.json": (Kept.ALWAYS, ""),
    f"plans/{'0' * 64}.json": (Kept.ALWAYS, ""),
    f"plans/{ULID}/files-000001-000000.{'0' * 32}.parquet": (Kept.ALWAYS, ""),
    f"consents/{'0' * 64}.json": (Kept.ALWAYS, ""),
    f"audit/{ULID}.json": (Kept.ALWAYS, ""),
    "ingest/node.Person.json": (Kept.ALWAYS, ""),
    f"throttle/slot-1{LEASE}": (Kept.ALWAYS, ""),
    f"rewrites/nodes.x/{ULID}/plan.json": (Kept.BY_TABLE, "nodes.x"),
    "results/manual__1/submit_rewrite.0.1.json": (Kept.NEVER, ""),
    f"runs/{ULID}/000001.json": (Kept.ALWAYS, ""),
    f"tasks/{'0' * 32}/{ULID}/left.json": (Kept.ALWAYS, ""),
}


@pytest.mark.parametrize("path", KNOWN)
def test_a_place_says_until_when_its_files_are_kept(path: str) -> None:
    assert kept_by(f"__maintenance/{path}") == KNOWN[path]


def test_every_place_is_reached_by_an_example() -> None:
    paths = [f"__maintenance/{path}" for path in KNOWN]
    assert [next(p for p, _ in PLACES if re.fullmatch(p, path)) for path in paths] == [p for p, _ in PLACES]


@pytest.mark.parametrize(
    "path",
    ["lease.json", "lease-7.json", "expire-rows.json", "clones/mine.lance/data/x.lance", "freezes/mine/x", "notes.txt"],
)
def test_what_this_tool_never_writes_is_in_no_place(path: str) -> None:
    assert kept_by(f"__maintenance/{path}") is None
    assert kept_by(f"__other/lease{LEASE}") is None


@pytest.mark.parametrize(
    "path",
    [
        *("expire-rows-1.json.0a.tmp", f"tasks/{'0' * 32}/{ULID}/left.json#1", f"plans/{ULID}/1.json.0a.tmp"),
        *(f"results/{ULID}/01.5.json.0a.tmp", f"runs/{ULID}/u.json.0a.tmp", f"rewrites/x/{ULID}/a.json.0a.tmp"),
    ],
)
def test_a_small_file_without_its_final_name_is_unfinished(path: str) -> None:
    assert is_unfinished(f"__maintenance/{path}")
    assert kept_by(f"__maintenance/{path}") is None


def test_no_other_module_spells_a_place() -> None:
    # `graph` imports nothing of `coordination`: the one place that it asks for is in its own layout.
    owners = {ROOT / "omnigraph_ops" / name for name in ("coordination/state.py", "graph/layout.py")}
    files = [p for d in ("omnigraph_ops", "plugins", "dags") for p in (ROOT / d).rglob("*.py") if p not in owners]
    assert files
    assert [path for path in files if _spells_a_place(ast.parse(path.read_text(encoding="utf-8")))] == []


def _spells_a_place(tree: ast.AST) -> bool:
    """Whether a string begins with a path below the folder, written out or by its constant."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("__maintenance/"):
            return True
        if isinstance(node, ast.JoinedStr) and isinstance(node.values[0], ast.FormattedValue):
            value = node.values[0].value
            if isinstance(value, ast.Name) and value.id == "MAINTENANCE_DIR":
                return True
    return False
