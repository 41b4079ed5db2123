"""Trigger forms: the params that requests make, and the requests that params make."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
from airflow.sdk.exceptions import ParamValidationError
from omnigraph_airflow.forms import request_in, request_params, said, stage_params
from omnigraph_airflow.nightly import night_params
from omnigraph_airflow.stage_dag import stage_dag

from omnigraph_ops.errors import InvalidInput
from omnigraph_ops.models.cleanup import SHORTEST_AGE_SECONDS
from omnigraph_ops.requests import build
from omnigraph_ops.stages.registry import BY_NAME, UNASKED_BY_NAME, planned

STARTS: dict[str, dict[str, Any]] = {
    "repair": {"tables": None, "evidence": "sample", "force": False},
    "cleanup": {
        "tables": None,
        "keep": 10,
        "older_than": "7d",
        "between_pins": False,
        "expiry": None,
        "confirm_versions": 1000,
        "confirm_size": "10GiB",
    },
    "orphans": {
        "older_than": "7d",
        "quarantine": True,
        "allow_young": False,
        "confirm_files": 10_000,
        "confirm_size": "10GiB",
    },
    "expire-rows": {"policies": None, "max_share": 0.5, "max_rows": None, "branch": None},
}
KEEPING: dict[str, dict[str, Any]] = {
    "backup": {"destination": None, "incremental": True, "checksum": False, "max_bytes_per_second": None},
    "freeze": {"tables": None, "ttl": "1d", "reason": ""},
}
TYPES = {
    ("repair", "tables"): ["null", "array"],
    ("repair", "evidence"): "string",
    ("cleanup", "keep"): ["null", "integer"],
    ("cleanup", "older_than"): ["null", "string"],
    ("cleanup", "expiry"): ["null", "object"],
    ("orphans", "older_than"): "string",
    ("orphans", "quarantine"): "boolean",
    ("expire-rows", "policies"): ["null", "array"],
    ("expire-rows", "max_share"): "number",
}


@pytest.mark.parametrize("name", KEEPING)
def test_a_form_of_a_stage_that_keeps_a_graph_starts_from_these_values(name: str) -> None:
    params = request_params(UNASKED_BY_NAME[name])
    assert {key: param.value for key, param in params.items()} == KEEPING[name]
    for param in params.values():
        assert (param.schema["title"], param.schema["description_md"]) != ("", "")
        param.resolve()


def test_what_a_request_needs_starts_empty_in_a_form() -> None:
    params = request_params(UNASKED_BY_NAME["backup"])
    assert params["destination"].schema["type"] == ["null", "string"]
    backup = UNASKED_BY_NAME["backup"].request
    with pytest.raises(InvalidInput, match="destination: is missing"):
        build(backup, said(backup, {"destination": None, "checksum": True}))


def request_of(stage: str, **values: Any) -> Any:
    kind = planned(stage).request
    return build(kind, said(kind, values))


@pytest.mark.parametrize("name", BY_NAME)
def test_a_form_starts_from_these_values(name: str) -> None:
    params = stage_params(planned(name))
    common = {"graph": None, "confirm": False, "digest": None}
    assert {key: param.value for key, param in params.items()} == {**common, **STARTS[name]}
    for param in params.values():
        assert param.schema["title"]
        assert param.schema["description_md"]
        param.resolve()


@pytest.mark.parametrize(("stage", "name"), TYPES)
def test_a_field_takes_the_json_that_it_took(stage: str, name: str) -> None:
    assert request_params(planned(stage))[name].schema["type"] == TYPES[stage, name]


def test_a_form_bounds_what_the_request_bounds() -> None:
    cleanup, rows = request_params(planned("cleanup")), request_params(planned("expire-rows"))
    assert cleanup["keep"].schema["minimum"] == 0
    assert cleanup["expiry"].schema["additionalProperties"] is False
    assert cleanup["expiry"].schema["section"] == "Snapshot expiry"
    assert cleanup["expiry"].schema["properties"]["time_retained_secs"]["minimum"] == SHORTEST_AGE_SECONDS
    assert rows["policies"].schema["items"]["properties"]["unit"]["enum"] == [None, "s", "ms"]
    assert request_params(planned("repair"))["evidence"].schema["enum"] == ["counts", "sample", "full"]
    assert "listing" not in request_params(planned("orphans"))


def test_a_field_of_json_says_its_keys() -> None:
    text = request_params(planned("cleanup"))["expiry"].schema["description_md"]
    assert text.startswith("Instead of number and age. The keys of its JSON:\n\n")
    assert "\n- `retain_min`, 10 if left out: " in text
    assert "\n- `time_retained`, 1h if left out: " in text
    assert "\n- `retain_max`: Remove versions beyond the newest N whatever their age." in text


@pytest.mark.parametrize(("age", "taken"), [("1s", False), ("59m", False), ("90m", True), ("7d", True), (None, True)])
def test_a_form_refuses_an_age_below_an_hour_before_anything_runs(age: str | None, *, taken: bool) -> None:
    cleanup = request_params(planned("cleanup"))
    for name, value in (("older_than", age), ("expiry", {"time_retained": age or "1h"})):
        with nullcontext() if taken else pytest.raises(ParamValidationError, match=str(age)):
            cleanup[name].resolve(value)


@pytest.mark.parametrize(
    ("name", "value", "taken"),
    [
        ("confirm_versions", 1_000_000, True),
        pytest.param("confirm_versions", 10**400, False, id="too many"),
        ("confirm_size", "10GiB", True),
        pytest.param("confirm_size", "\u0661\u0660GiB", False, id="digits of another script"),
    ],
)
def test_a_form_takes_the_bounds_that_the_run_can_read(name: str, value: object, *, taken: bool) -> None:
    with nullcontext() if taken else pytest.raises(ParamValidationError):
        stage_params(planned("cleanup"))[name].resolve(value)


def test_what_a_form_leaves_empty_is_not_asked_for() -> None:
    found = request_of("cleanup", tables=None, keep=3, older_than=None, expiry={}, between_pins=False)
    assert (found.tables, found.keep, found.older_than, found.expiry) == ((), 3, None, None)


@pytest.mark.parametrize(
    ("keep", "older_than", "left"),
    [
        pytest.param(10, "7d", True, id="as the form shows them"),
        pytest.param("10", "7d", True, id="as Jinja renders them"),
        pytest.param(None, None, True, id="emptied"),
        pytest.param(12, "7d", False, id="another number"),
        pytest.param(10, "8d", False, id="another age"),
    ],
)
def test_defaults_that_nobody_touched_do_not_forbid_an_expiry(keep: object, older_than: object, *, left: bool) -> None:
    values = {"keep": keep, "older_than": older_than, "expiry": {"retain_min": 2}}
    with nullcontext() if left else pytest.raises(InvalidInput, match="age empty"):
        found = request_in(planned("cleanup"), values)
        assert (found.keep, found.older_than, found.expiry.retain_min) == (None, None, 2)
    assert request_in(planned("cleanup"), {**values, "expiry": {}, "keep": 10}).keep == 10


def test_zero_and_false_are_said() -> None:
    assert request_of("cleanup", keep=0).keep == 0
    assert request_of("orphans", quarantine=False).quarantine is False


@pytest.mark.parametrize("terms", [{"time_retained_secs": 7200}, {"time_retained": "2h"}])
def test_an_expiry_says_its_time_in_seconds_or_with_a_unit(terms: dict[str, Any]) -> None:
    assert request_of("cleanup", expiry={"retain_min": 2, **terms}).expiry.time_retained == 7200


def test_a_text_that_jinja_made_a_number_is_a_text() -> None:
    policy = {"table": "table:a", "property": "at", "older_than": "3d"}
    assert request_of("expire-rows", policies=[policy], branch=2024).branch == "2024"
    with pytest.raises(InvalidInput, match="has no unit"):
        request_of("cleanup", older_than=604800)


def test_what_no_stage_has_is_refused() -> None:
    with pytest.raises(InvalidInput, match="no stage 'tidy'"):
        planned("tidy")


def test_an_empty_field_is_unsaid_only_where_it_is_free_text() -> None:
    rows = planned("expire-rows").request
    assert said(rows, {"branch": "", "max_share": None, "policies": []}) == {}
    cleanup = planned("cleanup").request
    assert said(cleanup, {"keep": 1, "older_than": ""}) == {"keep": 1, "older_than": ""}
    with pytest.raises(InvalidInput, match="older_than: duration is empty"):
        build(cleanup, said(cleanup, {"keep": 1, "older_than": ""}))


@pytest.mark.parametrize("branch", ["None", "1_0", "True", "(1, 2)", "it's", "a branch " * 20])
def test_a_text_reaches_the_request_as_it_was_written(branch: str) -> None:
    stage, entry = planned("expire-rows"), {"table": "node:A", "property": "at", "older_than": "90d"}
    dag = stage_dag("expire-rows")
    task: Any = dag.get_task(stage.tasks.plan)
    params = {name: dag.params[name] for name in dag.params} | {"branch": branch, "policies": [entry]}
    rendered = task.render_template(task.request, {"params": params}, dag.get_template_env())
    request = request_in(stage, rendered)
    assert (request.branch, request.policies[0].table, request.max_share) == (branch, "node:A", 0.5)


@pytest.mark.parametrize(
    ("bounds", "taken"),
    [(None, True), ({}, True), ({"max_versions": 5, "max_bytes": 9}, True), ({"max_versions": 5}, False)],
)
def test_a_standing_approval_has_both_bounds_or_none(bounds: dict[str, int] | None, taken: bool) -> None:
    with nullcontext() if taken else pytest.raises(ParamValidationError, match="max_bytes"):
        night_params()["standing_approval"].resolve(bounds)
