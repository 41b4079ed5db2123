"""The reference of the settings, and what is in force."""

from __future__ import annotations

import json

import pytest

from omnigraph_ops.cli.main import main
from omnigraph_ops.config.settings import Setting, Settings, misspelled_settings, settings_report
from omnigraph_ops.errors import InvalidInput


def test_every_setting_is_described_with_its_default() -> None:
    described = {s.variable: s for s in settings_report({}).settings}
    assert {s.name for s in described.values()} == set(Settings.model_fields) - {"auto", "publish_attempts"}
    assert all(s.meaning for s in described.values())
    assert described["OMNIGRAPH_OPS_SMALL_TABLE_BYTES"].default == "67108864 (64.0 MiB)"
    assert not any("OMNIGRAPH" in s.meaning for s in described.values())


@pytest.mark.parametrize("setting", settings_report({}).settings, ids=lambda setting: setting.name)
def test_every_variable_is_read_and_no_other(setting: Setting) -> None:
    said = {
        "policy": "tiered",
        "binary_copy": "never",
        "exclusive": "on",
        "defer_index_remap": "on",
        "retrain_vectors": "on",
        "purge_deleted": "on",
        "spark_stages": "repair=4GiB,orphans",
    }
    text = said.get(setting.name, "0.75" if setting.name.endswith("_share") else "7")
    (changed,) = (s for s in settings_report({setting.variable: text}).settings if s.is_set)
    assert (changed.name, changed.value.split()[0]) == (setting.name, text)
    assert getattr(Settings.from_env({setting.variable: text}), setting.name) != getattr(Settings(), setting.name)


@pytest.mark.parametrize("name", ["AUTO", "PUBLISH_ATTEMPTS", "CONCURRENCY"])
def test_what_looks_like_the_variable_of_a_setting_changes_nothing(name: str) -> None:
    assert Settings.from_env({f"OMNIGRAPH_OPS_{name}": "1"}) == Settings()


def test_the_environment_is_read_nowhere_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIGRAPH_OPS_HISTORY_DAYS", "many")
    assert Settings().history_days == 400


def test_what_somebody_set_is_told_from_a_default() -> None:
    rows = settings_report({"OMNIGRAPH_OPS_CUTOFF": "5", "OMNIGRAPH_OPS_POLICY": " "}).settings
    assert {s.variable: s.value for s in rows if s.is_set} == {"OMNIGRAPH_OPS_CUTOFF": "5"}


def test_a_malformed_value_is_refused() -> None:
    with pytest.raises(InvalidInput, match="OMNIGRAPH_OPS_CUTOFF"):
        settings_report({"OMNIGRAPH_OPS_CUTOFF": "many"})


def test_the_verb_shows_what_is_set_first(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("OMNIGRAPH_OPS_HISTORY_DAYS", "30")
    assert main(["settings"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[lines.index("Set here") + 2].split()[:2] == ["OMNIGRAPH_OPS_HISTORY_DAYS", "30"]
    assert main(["settings", "--json"]) == 0
    found = {s["variable"]: s for s in json.loads(capsys.readouterr().out)["settings"]}
    assert found["OMNIGRAPH_OPS_HISTORY_DAYS"]["is_set"]


def test_a_variable_that_is_no_setting_is_named_with_what_it_may_mean() -> None:
    known = {s.variable: "1" for s in settings_report({}).settings}
    beside = {"OMNIGRAPH_OPS_TRACEBACK": "1", "OMNIGRAPH_OPS_AIRFLOW_URL": "x", "OMNIGRAPH_GRAPH": "/g"}
    assert misspelled_settings(known | beside) == ()
    assert misspelled_settings({"OMNIGRAPH_OPS_EXCLUSVE": "1", "OMNIGRAPH_OPS_COLOUR": "1"}) == (
        "OMNIGRAPH_OPS_COLOUR is no setting and changes nothing",
        "OMNIGRAPH_OPS_EXCLUSVE is no setting and changes nothing; did you mean 'OMNIGRAPH_OPS_EXCLUSIVE'?",
    )


def test_the_shell_warns_of_one_and_goes_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OMNIGRAPH_OPS_HISTORY_DAY", "30")
    assert main(["settings"]) == 0
    assert capsys.readouterr().err == (
        "warning: OMNIGRAPH_OPS_HISTORY_DAY is no setting and changes nothing; "
        "did you mean 'OMNIGRAPH_OPS_HISTORY_DAYS'?\n"
    )
