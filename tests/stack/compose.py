"""docker-compose.yaml as the Compose Specification's own loader understands it."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "docker-compose.yaml"
LOADER = ROOT / ".stack" / "bin" / "compose-spec"
VARIABLE = re.compile(r"\$\{(\w+):\?[^}]*\}")
"""The one form that the file uses (tests/docs says so): a variable without which nothing starts."""


class InvalidComposeFile(Exception):
    """The loader refused the file; the message is its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """What one container of the file is started with."""

    name: str
    image: str
    entrypoint: tuple[str, ...] | None
    """None: the image's own."""
    command: tuple[str, ...]
    environment: Mapping[str, str]
    health: tuple[str, ...] | None
    """The check as the file spells it: `CMD` or `CMD-SHELL`, then its words."""
    needs: Mapping[str, str]
    """Services that come first, and until when: `service_healthy`, `service_completed_successfully`."""
    volumes: Mapping[str, str]
    """Folders in the container, and the volume that each is."""
    temporary: tuple[str, ...]
    """Folders in the container that end with it."""
    listens: tuple[int, ...]
    published: Mapping[int, int]
    """Ports of the container, and of this machine."""
    replicas: int
    aliases: frozenset[str]
    """Its other names."""


def load(variables: Mapping[str, str], text: str | None = None) -> dict[str, Service]:
    """The services of the file, all of it checked against the specification. Starts a process."""
    given = VARIABLE.sub(lambda match: variables[match[1]], FILE.read_text() if text is None else text)
    command = [str(LOADER), "-format", "json", "/dev/stdin"]
    done = subprocess.run(command, input=given, capture_output=True, text=True, cwd=ROOT, check=False)
    if done.returncode != 0:
        raise InvalidComposeFile(done.stderr.strip())
    return {name: _service(name, spec) for name, spec in json.loads(done.stdout)["services"].items()}


def in_order(services: Mapping[str, Service]) -> list[Service]:
    """Every service after all that it needs. Pure."""
    ordered: dict[str, Service] = {}

    def add(name: str) -> None:
        for needed in services[name].needs:
            add(needed)
        ordered.setdefault(name, services[name])

    for name in services:
        add(name)
    return list(ordered.values())


def _service(name: str, spec: Mapping[str, Any]) -> Service:
    entrypoint = spec.get("entrypoint")
    return Service(
        name=name,
        image=spec["image"],
        entrypoint=None if entrypoint is None else tuple(entrypoint),
        command=tuple(spec.get("command") or ()),
        environment=spec.get("environment", {}),
        health=tuple(spec["healthcheck"]["test"]) if "healthcheck" in spec else None,
        needs={needed: how["condition"] for needed, how in spec.get("depends_on", {}).items()},
        volumes={volume["target"]: volume["source"] for volume in spec.get("volumes", ())},
        temporary=tuple(mount.partition(":")[0] for mount in spec.get("tmpfs", ())),
        listens=tuple(int(port) for port in spec.get("expose", ())),
        published={int(port["target"]): int(port["published"]) for port in spec.get("ports", ())},
        replicas=spec.get("deploy", {}).get("replicas", 1),
        aliases=frozenset(alias for how in spec["networks"].values() for alias in (how or {}).get("aliases", ())),
    )
