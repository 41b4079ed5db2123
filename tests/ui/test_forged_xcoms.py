"""What a run reports, and what the graph remembers of it, whoever writes over the XComs of its tasks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import unquote

import pytest

from omnigraph_ops.outcomes import history
from tests.ui.live import REMOVE, Live, grow, xcom_of

pytestmark = [pytest.mark.ui, pytest.mark.xdist_group("live")]
PLAN, REPORT = "plan_cleanup", "report"
FIGURES = ("old_versions_removed", "bytes_removed")


@pytest.fixture(scope="module")
def run(live: Live) -> str:
    """A cleanup that removed something, and has reported it."""
    grow(live.graph("open"))
    made = live.trigger("user", "open")
    assert live.ended(made) == "success"
    return made


def leave(live: Live, run: str) -> None:
    """Nothing: a report that is made again says the same."""


def change(live: Live, run: str) -> None:
    """Figures that are too good, of every task that removed something."""
    for index, rows in lots(live, run).items():
        entry = xcom_of(run, REMOVE, "return_value")
        forged = [{**row, **dict.fromkeys(FIGURES, 10**9)} for row in rows]
        live.call("user", "PATCH", entry, {"value": forged, "map_index": index}).raise_for_status()


def delete(live: Live, run: str) -> None:
    """All that the plan and the removal left, but for what the removal is mapped over."""
    live.xcom("user", "DELETE", xcom_of(run, PLAN, "plan"))
    for index in lots(live, run):
        live.xcom("user", "DELETE", f"{xcom_of(run, REMOVE, 'return_value')}?map_index={index}")


def write(live: Live, run: str) -> None:
    """A failure that never was, of a task that went well, and a reason for a stage that was not skipped."""
    failure = {"task_id": PLAN, "table_key": None, "message": "forged", "map_index": -1}
    for key, value in (("failure", [failure]), ("skipped", "forged")):
        body = {"key": key, "value": value, "map_index": -1}
        live.call("user", "POST", f"{run}/taskInstances/{PLAN}/xcomEntries", body).raise_for_status()


@pytest.mark.parametrize("forge", [leave, change, write, delete])
def test_forged_xcoms_change_neither_the_report_nor_the_history_nor_the_audit_log(
    live: Live, run: str, forge: Callable[[Live, str], None]
) -> None:
    before = remembered(live, run)
    assert before["work"].versions_removed > 0
    forge(live, run)
    live.clear("user", run, REPORT)
    assert live.ended(run) == "success"
    assert remembered(live, run) == before


def remembered(live: Live, run: str) -> dict[str, Any]:
    """What the report of the run says, and what the graph keeps of it."""
    report = live.xcom("viewer", "GET", xcom_of(run, REPORT, REPORT))
    run_id = unquote(run.rpartition("/")[2])
    (record,) = (found for found in history.read_runs(live.graph("open")) if found.header.dag_run_id == run_id)
    return {
        "report": {key: report[key] for key in ("outcome", "failed", "unapproved", "markdown")},
        "work": record.work,
        "outcome": (record.outcome, record.errors, record.notes, record.decisions),
        "audit": live.told("open"),
    }


def lots(live: Live, run: str) -> dict[int, list[dict[str, Any]]]:
    """What each task that removed something returned, by its index."""
    mapped = live.call("user", "GET", f"{run}/taskInstances/{REMOVE}/listMapped").json()["task_instances"]
    found = {}
    for index in sorted(one["map_index"] for one in mapped):
        path = f"{xcom_of(run, REMOVE, 'return_value')}?map_index={index}"
        found[index] = live.xcom("user", "GET", path)
    return found
