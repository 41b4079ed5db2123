"""The nightly DAG on a LanceDB folder: green, and the rows as before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support import plain
from tests.support.runs import Finished

pytestmark = [pytest.mark.airflow, pytest.mark.xdist_group("airflow")]


def test_a_night_on_a_database(dags: Any, tmp_path: Path) -> None:
    folder = plain.database(tmp_path / "db")
    paths = {name: folder / f"{name}.lance" for name in ("stable", "unstable")}
    seen = {name: (plain.content(path), plain.answers(path)) for name, path in paths.items()}
    conf = {"graph": str(folder), "quiet_seconds": 0, "keep": 2, "older_than": None, "confirm_cleanup": True}
    night = Finished(dags["omnigraph_maintenance"].test(run_conf=conf))
    assert night.state == "success", night.tasks
    assert night.of("optimize_table") == ["success"] * 2
    assert night.of("apply_repair") == ["skipped"]
    assert set(night.of("cleanup_table")) == {"success"}
    assert {name: (plain.content(path), plain.answers(path)) for name, path in paths.items()} == seen
    assert {len(plain.fragment_ids(path)) for path in paths.values()} == {1}
    assert {len(plain.versions(path)) for path in paths.values()} == {2}
    assert night.report["attention"] == []
