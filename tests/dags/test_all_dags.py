"""The module that an existing Airflow imports, in a checkout; tests/packaging has it in the wheel."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = pytest.mark.airflow


def test_a_star_import_brings_exactly_the_dags(dags: Any) -> None:
    names: dict[str, Any] = {}
    exec("from omnigraph_airflow.all_dags import *", names)
    del names["__builtins__"]
    assert names.keys() == dags.keys()
    assert {name: dag.dag_id for name, dag in names.items()} == {name: name for name in names}
