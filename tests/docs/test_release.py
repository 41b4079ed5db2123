"""One release: the package, its metadata, the image of the stack and the changelog name the same version."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import omnigraph_airflow
import yaml

import omnigraph_ops

ROOT = Path(__file__).parents[2]


def test_everything_names_the_same_release() -> None:
    release = omnigraph_ops.__version__
    metadata = tomllib.loads((ROOT / "pyproject.toml").read_text())
    stack = yaml.safe_load((ROOT / "docker-compose.yaml").read_text())
    cut = re.findall(r"^## \[([^]]+)\] - \d{4}-\d\d-\d\d$", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE)
    named = [metadata["project"]["version"], omnigraph_airflow.__version__, stack["x-image"]["image"].split(":")[1]]
    assert {*named, cut[0]} == {release}
