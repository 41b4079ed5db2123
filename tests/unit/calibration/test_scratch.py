"""The folder of a calibration, and what its submits know of the deployment."""

from __future__ import annotations

from pathlib import Path

import pytest

from omnigraph_ops.calibration import scratch
from omnigraph_ops.calibration.scratch import environment, scratch_folder
from omnigraph_ops.errors import InvalidInput


@pytest.mark.parametrize("name", ["none", "", " "])
def test_a_scratch_folder_that_is_none_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidInput, match="is not a folder"), scratch_folder(name and str(tmp_path / name)):
        pass


def test_submits_know_credentials_and_no_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scratch, "spark_environment", lambda: {"JAVA_HOME": "/java"})
    monkeypatch.setenv("OMNIGRAPH_OPS_ENGINE_ROOT", "/elsewhere")
    monkeypatch.setenv("AWS_REGION", "x")
    found = environment(tmp_path)
    assert "OMNIGRAPH_OPS_ENGINE_ROOT" not in found
    assert (found["AWS_REGION"], found["JAVA_HOME"], found["SPARK_LOCAL_DIRS"]) == ("x", "/java", str(tmp_path))
