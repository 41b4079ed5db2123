"""The list of a graphs file says all that a retention is."""

from __future__ import annotations

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
