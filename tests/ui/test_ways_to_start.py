"""Every way to start or to change a run of docs/reference/rights.md, tried with everything that its form can say.

The users are not approvers, or are and use a way that is no answer. Afterwards the graph is looked at: its versions,
what it publishes, its audit log.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

import pytest

from omnigraph_ops.config.graph_entries import nightly_dag_id
from tests.support.writers import entry_of
from tests.ui.live import APPROVE, LOADED, Live, grow, removed_by

pytestmark = [pytest.mark.ui, pytest.mark.xdist_group("live")]
REPAIR, APPLY, REMOVE = "approve_repair", "apply_repair", "cleanup_table"
WIDE = {"max_versions": 1_000_000, "max_bytes": 2**50}
EVERYTHING = {
    "confirm_cleanup": True,
    "confirm_repair": True,
    "force_repair": True,
    "standing_approval": WIDE,
    "confirm_versions": 1_000_000,
    "confirm_size": "1TiB",
    "keep": 1,
    "older_than": None,
    "quiet_seconds": 0,
}
"""All that the form of a night has to offer to whoever wants things gone."""
DRIFTED = "node:Company"


@dataclass(frozen=True)
class Before:
    """A graph before somebody tried something on it."""

    live: Live
    name: str
    versions: int
    published: int
    told: list[tuple[str, str]]

    @property
    def newest(self) -> int:
        graph = self.live.graph(self.name)
        return int(graph.open_head(entry_of(graph, DRIFTED)).version)

    def unchanged(self) -> bool:
        """Whether nothing was removed and nothing published; optimize may have added versions."""
        now = look(self.live, self.name)
        return now.versions >= self.versions and now.published == self.published

    def untold(self) -> bool:
        """Whether no approval and no start of anything was recorded."""
        return self.live.told(self.name) == self.told


def look(live: Live, name: str) -> Before:
    graph = live.graph(name)
    drifted = graph.state().get(DRIFTED)
    return Before(live, name, live.versions(name), drifted.version if drifted else 0, live.told(name))


@dataclass(frozen=True)
class Night:
    """A run of a night, and its graph before it."""

    run: str
    before: Before


@pytest.fixture(scope="module")
def nights(live: Live) -> Iterator[dict[str, Night]]:
    """One night of each kind, begun at once: they work side by side, on a graph each."""
    names = ("nightly", "listed", "fed", "made", "reserved")
    before = {name: look(live, name) for name in names}
    for name in names:
        live.unpause(nightly_dag_id(name))
    event = {"asset_id": live.asset(LOADED), "extra": {}}
    assert live.call("user", "POST", "/assets/events", event).status_code == 403
    live.call("op", "POST", "/assets/events", event).raise_for_status()
    runs = {name: live.materialise("op", name, **EVERYTHING) for name in ("made", "reserved")}
    runs["fed"] = live.run_of_type(nightly_dag_id("fed"), "asset_triggered")
    for name in ("nightly", "listed"):
        runs[name] = live.run_of_type(nightly_dag_id(name), "scheduled")
    yield {name: Night(run, before[name]) for name, run in runs.items()}


def test_a_night_by_the_clock_does_what_the_file_approves_and_a_clear_repeats_it(
    live: Live, nights: dict[str, Night]
) -> None:
    night = nights["nightly"]
    assert live.ended(night.run) == "success"
    assert removed_by("the standing approval", live.told("nightly"))
    after = look(live, "nightly")
    assert after.versions < night.before.versions
    assert night.before.published < after.published == after.newest
    grow(live.graph("nightly"))
    grown = live.versions("nightly")
    live.clear("user", night.run)
    assert live.ended(night.run) == "success"
    assert removed_by("the standing approval", live.told("nightly"))
    assert live.versions("nightly") < grown


def test_a_backfill_over_a_night_by_the_clock_has_neither_its_approvals_nor_those_of_its_conf(
    live: Live, nights: dict[str, Night]
) -> None:
    """Airflow gives the run of the clock another type and the conf of whoever asks for the backfill."""
    night = nights["nightly"].run
    live.ended(night)
    grow(live.graph("nightly"))
    before = look(live, "nightly")
    again = live.backfill("user", "nightly", logical_date(live, night), again="completed", **EVERYTHING)
    assert again == night
    live.waits(again)
    live.stop(again)
    live.ended(again)
    assert before.unchanged()
    assert before.untold()


def test_a_night_by_the_clock_asks_approvers_about_what_the_file_does_not_approve(
    live: Live, nights: dict[str, Night]
) -> None:
    night = nights["listed"]
    live.asked(night.run, REPAIR)
    assert {live.answer(user, night.run, task_id=REPAIR) for user in ("viewer", "user", "admin")} == {403}
    assert live.answer("op", night.run, "Reject", REPAIR) == 200
    live.waits(night.run)
    assert live.answer("user", night.run) == 403
    live.stop(night.run)
    assert live.ended(night.run) == "failed"
    assert night.before.unchanged()
    assert ("rejected", "op") in live.told("listed")


def test_a_backfill_approves_nothing_where_there_are_approvers(live: Live, nights: dict[str, Night]) -> None:
    """Of an approver, too: a conf is no answer."""
    live.ended(nights["listed"].run)
    earlier = datetime.fromisoformat(logical_date(live, nights["listed"].run)) - timedelta(days=3)
    before = look(live, "listed")
    run = live.backfill("op", "listed", earlier.isoformat(), **EVERYTHING)
    mark_past_the_questions(live, run)
    assert live.ended(run) == "failed"
    assert before.unchanged()
    assert before.untold()


def test_a_materialisation_approves_nothing_where_there_are_approvers(live: Live, nights: dict[str, Night]) -> None:
    night = nights["reserved"]
    assert (
        live.call("user", "POST", f"/assets/{live.asset('omnigraph://reserved/')}/materialize", {}).status_code == 403
    )
    mark_past_the_questions(live, night.run)
    assert live.ended(night.run) == "failed"
    assert night.before.unchanged()
    assert night.before.untold()


def test_a_materialisation_cleans_up_within_the_bounds_of_its_params_and_repairs_nothing(
    live: Live, nights: dict[str, Night]
) -> None:
    night = nights["made"]
    live.waits(night.run, REPAIR)
    live.mark("user", night.run, REPAIR, "success")
    assert live.ended(night.run) == "failed"
    assert live.task(night.run, APPLY) == "failed"
    assert removed_by("the standing approval, in a run that op started", live.told("made"))
    after = look(live, "made")
    assert after.versions < night.before.versions
    assert after.published == night.before.published < after.newest


def test_a_cleared_materialisation_asks(live: Live, nights: dict[str, Night]) -> None:
    run = nights["made"].run
    live.ended(run)
    grow(live.graph("made"))
    before = look(live, "made")
    live.clear("user", run)
    live.waits(run)
    assert live.task(run, REPAIR) == "failed", "Airflow goes on showing the text of the first preview"
    live.stop(run)
    live.ended(run)
    assert before.unchanged()
    assert before.untold()


def test_the_update_of_an_asset_does_what_the_file_approves_only(live: Live, nights: dict[str, Night]) -> None:
    night = nights["fed"]
    live.waits(night.run)
    live.stop(night.run)
    live.ended(night.run)
    assert night.before.unchanged()
    assert night.before.untold()


def test_no_spelling_of_its_address_gets_a_graph_around_its_approvers(live: Live) -> None:
    """The form of the nightly DAG takes any path, and `link.omni` is a link to a graph of the file."""
    before = look(live, "linked")
    around = f"{live.root}/open.omni/../link.omni/"
    body = {"logical_date": None, "conf": {"graph": around}}
    assert live.call("user", "POST", "/dags/omnigraph_cleanup/dagRuns", body).status_code == 400
    live.unpause("omnigraph_maintenance")
    live.stop(live.run_of_type("omnigraph_maintenance", "scheduled"))
    run = live.start("user", "omnigraph_maintenance", graph=around, **EVERYTHING)
    live.asked(run)
    assert {live.answer(user, run) for user in ("user", "op", "admin")} == {403}
    live.mark("user", run, APPROVE, "success")
    assert live.ended(run) == "failed"
    assert before.unchanged()
    assert before.untold()


def mark_past_the_questions(live: Live, run: str) -> None:
    """Wait for both questions of a night and mark each a success, as a user without an answer may. Writes."""
    for task_id, after in ((REPAIR, APPLY), (APPROVE, REMOVE)):
        live.waits(run, task_id)
        live.mark("user", run, task_id, "success")
        live.wait(after, lambda after=after: live.task(run, after) == "failed")  # type: ignore[misc]


def logical_date(live: Live, run: str) -> str:
    return str(live.call("admin", "GET", run).json()["logical_date"])
