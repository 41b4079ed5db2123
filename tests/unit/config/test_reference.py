"""The reference of the settings, and what is in force."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import omnigraph_ops.config.settings
from omnigraph_ops.cli.main import main
from omnigraph_ops.config.reference import BEGIN, END, markdown, misspelled_settings, replaced, settings_report
from omnigraph_ops.errors import InvalidInput


def test_every_variable_that_is_read_is_described_with_its_default() -> None:
    source = Path(omnigraph_ops.config.settings.__file__).read_text(encoding="utf-8")
    read = {f"OMNIGRAPH_OPS_{name}" for name in re.findall(r'prefix \+ "([A-Z_]+)"', source)}
    described = {s.variable: s for s in settings_report({}).settings}
    assert set(described) == read | {"OMNIGRAPH_MAINTENANCE_CONCURRENCY"}
    assert described["OMNIGRAPH_OPS_SMALL_TABLE_BYTES"].default == "67108864 (64.0 MiB)"
    assert not any("OMNIGRAPH" in s.meaning for s in described.values())


def test_what_somebody_set_is_told_from_a_default() -> None:
    rows = settings_report({"OMNIGRAPH_OPS_CUTOFF": "5", "OMNIGRAPH_OPS_POLICY": " "}).settings
    assert {s.variable: s.value for s in rows if s.is_set} == {"OMNIGRAPH_OPS_CUTOFF": "5"}


def test_a_malformed_value_is_refused() -> None:
    with pytest.raises(InvalidInput, match="OMNIGRAPH_OPS_CUTOFF"):
        settings_report({"OMNIGRAPH_OPS_CUTOFF": "many"})


def test_only_the_table_of_a_document_changes() -> None:
    report = settings_report({})
    old = f"before\n{BEGIN}\n| stale |\n{END}\nafter\n"
    assert replaced(old, report) == f"before\n{BEGIN}\n{markdown(report)}\n{END}\nafter\n"


def test_the_verb_shows_what_is_set_first(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("OMNIGRAPH_OPS_HISTORY_DAYS", "30")
    assert main(["settings"]) == 0
    assert capsys.readouterr().out.split()[:2] == ["OMNIGRAPH_OPS_HISTORY_DAYS", "30"]
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
