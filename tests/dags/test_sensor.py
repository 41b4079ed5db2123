"""The sensor: it looks, waits without a worker, and gives up in time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from omnigraph_ops.demo import DemoSpec, write_demo_graph
from tests.support.runs import Instance

pytestmark = [pytest.mark.airflow, pytest.mark.xdist_group("airflow")]


@pytest.fixture
def sensor(tmp_path: Path) -> Any:
    """A sensor on a graph that was published to a moment ago."""
    from omnigraph_airflow.sensors.quiet_graph import QuietGraphSensor

    write_demo_graph(str(tmp_path / "g"), DemoSpec(node_types=1, loads=1, rows=3))
    return lambda **kwargs: QuietGraphSensor(
        task_id="wait", graph=str(tmp_path / "g"), quiet_seconds=kwargs.pop("quiet_seconds", 3600), **kwargs
    )


def test_deferrable_waits_in_the_triggerer_and_looks_again(sensor: Any) -> None:
    from airflow.sdk.exceptions import TaskDeferred

    wait = sensor(deferrable=True, poke_interval=3000, timeout=60_000)
    with pytest.raises(TaskDeferred) as deferred:
        wait.execute({})
    assert deferred.value.method_name == "look_again"
    _, arguments = deferred.value.trigger.serialize()
    assert timedelta(0) < arguments["moment"] - datetime.now(UTC) <= timedelta(seconds=3000)
    wait.quiet_seconds = 0
    assert wait.look_again({}, event=None, **deferred.value.kwargs) is None


def test_deferrable_gives_up_after_its_timeout(sensor: Any) -> None:
    from airflow.sdk.exceptions import AirflowSensorTimeout

    wait = sensor(deferrable=True)
    instance = Instance("wait")
    with pytest.raises(AirflowSensorTimeout, match="not quiet within"):
        wait.look_again({"ti": instance}, until=(datetime.now(UTC) - timedelta(seconds=1)).isoformat())
    (failure,) = instance.pushed["failure"]
    assert "not quiet within" in failure["message"]


@pytest.mark.parametrize("deferrable", [False, True])
def test_a_graph_that_cannot_be_looked_at_is_a_sentence_for_the_report(sensor: Any, *, deferrable: bool) -> None:
    from airflow.sdk.exceptions import AirflowFailException

    wait, instance = sensor(deferrable=deferrable, mode="poke"), Instance("wait")
    wait.graph = "http://example.com/g"
    with pytest.raises(AirflowFailException, match="server address"):
        wait.execute({"ti": instance})
    assert "server address" in instance.pushed["failure"][0]["message"]


def test_waiting_is_no_failure(sensor: Any) -> None:
    from airflow.sdk.exceptions import AirflowRescheduleException

    instance = Instance("wait")
    instance.get_first_reschedule_date = lambda _context: None  # type: ignore[attr-defined]
    with pytest.raises(AirflowRescheduleException):
        sensor().execute({"ti": instance})
    assert instance.pushed == {}


def test_a_quiet_graph_is_not_waited_for(sensor: Any) -> None:
    assert sensor(deferrable=True, quiet_seconds=0).execute({}) is None


def test_without_a_triggerer_it_is_rescheduled(sensor: Any) -> None:
    wait = sensor()
    assert (wait.deferrable, wait.mode) == (False, "reschedule")
    assert not wait.poke({})


def test_airflow_decides_unless_the_dag_does(sensor: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__OPERATORS__DEFAULT_DEFERRABLE", "True")
    assert sensor().deferrable
    assert not sensor(deferrable=False).deferrable
