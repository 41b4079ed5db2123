"""The DAG of row retention: a look first, a person or a digest, then exactly that."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from omnigraph_ops.outcomes import audit_log, history
from tests.support.events import ids, items
from tests.support.plain import opened
from tests.support.runs import Finished

pytestmark = [pytest.mark.airflow, pytest.mark.xdist_group("airflow")]
DAG_ID = "omnigraph_row_retention"
POLICIES = [{"table": "table:items", "property": "at", "older_than": "30d"}]
Answer = Callable[..., list[dict[str, Any]]]


def run(dags: Any, root: Path, **params: Any) -> Finished:
    return Finished(dags[DAG_ID].test(run_conf={"graph": str(root), "policies": POLICIES, **params}))


def test_a_look_deletes_nothing_and_its_digest_exactly_that(dags: Any, tmp_path: Path) -> None:
    root = items(tmp_path / "data", [1, 2, 60])
    looked = run(dags, root)
    assert (looked.state, looked.of("approve_row_retention")) == ("success", ["skipped"])
    assert ids(root) == [0, 1, 2]
    assert looked.report["outcome"] == "previewed"
    digest = looked.xcom("plan_row_retention")["digest"]
    done = run(dags, root, confirm=True, digest=digest)
    assert (done.state, done.of("expire_rows"), ids(root)) == ("success", ["success"], [0, 1])
    assert "deleted (table:items 1)" in done.report["markdown"]
    assert [(e.verb, str(e.event)) for e in audit_log.log_of(opened(root).storage, "").entries] == [
        ("expire-rows", "approved"),
        ("expire-rows", "started"),
        ("expire-rows", "applied"),
    ]
    newest = history.read_runs(opened(root))[0]
    assert (newest.header.verb, newest.outcome) == ("expire-rows", "succeeded")


@pytest.mark.parametrize(("option", "left"), [("Approve", [0, 1]), ("Reject", [0, 1, 2])])
def test_confirm_alone_asks(dags: Any, tmp_path: Path, answer_hitl: Answer, option: str, left: list[int]) -> None:
    root = items(tmp_path / "data", [1, 2, 60])
    seen = answer_hitl("approve_row_retention", option)
    done = run(dags, root, confirm=True)
    assert (done.state, done.report["outcome"]) == {"Approve": ("success", "succeeded")}.get(
        option, ("failed", "unapproved")
    )
    assert "| 1 | 3 | 33.3% |" in seen[0]["body"]
    assert ids(root) == left


def test_a_table_beyond_its_share_needs_attention(dags: Any, tmp_path: Path) -> None:
    root = items(tmp_path / "data", [1, 60, 70])
    done = run(dags, root, confirm=True)
    assert done.state == "success"
    assert "keeps its expired rows: 2 of 3 rows (67%)" in "".join(done.report["attention"])
    assert ids(root) == [0, 1, 2]
