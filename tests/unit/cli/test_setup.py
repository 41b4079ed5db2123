"""The list of a graphs file says all that a retention is, and what is wrong with the file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from omnigraph_ops.cli.main import main


@pytest.mark.parametrize(
    ("retention", "words"),
    [
        ("{keep: 3, older_than: 7d, between_pins: true}", "keep 3, older than 7d, also between pins"),
        ("{keep: 3, older_than: 7d}", "keep 3, older than 7d"),
        ("{expiry: {retain_min: 4}, between_pins: true}", "expiry, at least 4, also between pins"),
    ],
)
def test_the_list_says_whether_versions_between_pins_go(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], retention: str, words: str
) -> None:
    file = tmp_path / "graphs.yaml"
    file.write_text(f"version: 1\ngraphs:\n  people:\n    target: s3://lake/people\n    retention: {retention}\n")
    assert main(["graphs", str(file)]) == 0
    assert f"{words}  anybody" in capsys.readouterr().out
    assert main(["graphs", str(file), "--json"]) == 0
    assert f'"retention": "{words}"' in capsys.readouterr().out


def test_faults_are_json_where_json_is_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "graphs.yaml"
    file.write_text("version: 1\ngraphs:\n  people: {target: /g, keep: 1}\n  onS3: {target: /h}\n")
    assert main(["graphs", str(file), "--json"]) == 1
    printed = capsys.readouterr()
    found = json.loads(printed.out)
    assert (found["file"], found["graphs"]) == (str(file), [])
    assert found["faults"] == printed.err.removeprefix("Error: ").splitlines()
    assert f"{file}:3: graphs.people.keep: unknown key" in found["faults"]
