"""The file is valid against the Compose Specification, and the loader is one that would say so."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.stack.compose import FILE, InvalidComposeFile, load
from tests.stack.machine import Machine, image_environment


def test_the_file_is_valid(variables: dict[str, str]) -> None:
    services = load(variables)
    assert {"api-server", "scheduler", "dag-processor", "triggerer", "postgres", "s3"} < set(services)
    assert services["spark-worker"].replicas == 2


@pytest.mark.parametrize(
    ("sound", "broken", "said"),
    [
        ("    expose: [", "    exposes: [", "services.postgres"),
        ("condition: service_healthy", "condition: healthy", "depends_on"),
        ("deploy: {replicas: 2}", "deploy: {replicas: two}", "replicas"),
    ],
)
def test_a_broken_file_is_refused(variables: dict[str, str], sound: str, broken: str, said: str) -> None:
    with pytest.raises(InvalidComposeFile, match=said):
        load(variables, FILE.read_text().replace(sound, broken, 1))


def test_what_the_image_brings_is_on_this_machine_too(variables: dict[str, str], tmp_path: Path) -> None:
    machine = Machine(home=tmp_path, services=load(variables))
    folders = {
        name: machine.value(value, "scheduler") for name, value in image_environment().items() if value[0] == "/"
    }
    assert {name for name, folder in folders.items() if not Path(folder).exists()} == set()
    assert len(folders) >= 3
