"""The module that an existing Airflow imports, in a checkout; tests/packaging has it in the wheel."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

INSTALL = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "install.md"

pytestmark = pytest.mark.airflow


def test_a_star_import_brings_exactly_the_dags(dags: Any) -> None:
    names: dict[str, Any] = {}
    exec("from omnigraph_airflow.all_dags import *", names)
    del names["__builtins__"]
    assert names.keys() == dags.keys()
    assert {name: dag.dag_id for name, dag in names.items()} == {name: name for name in names}


def test_the_file_for_a_clone_raises_the_faults_of_the_graphs_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also in a wheel, but there one line is enough."""
    graphs = tmp_path / "graphs.yaml"
    monkeypatch.setenv("OMNIGRAPH_GRAPHS_FILE", str(graphs))
    (code,) = re.findall(r"```python\n(import runpy\n.*?)```", INSTALL.read_text(), re.DOTALL)
    graphs.write_text("version: 1\ngraphs: {people: {target: /g}}\n")
    exec(code, {})
    graphs.write_text("version: 1\ngraphs: {people: {target: /g, nope: 1}}\n")
    with pytest.raises(Exception, match="nope"):
        exec(code, {})
