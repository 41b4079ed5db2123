"""What containers call themselves, their ports and their folders, said in terms of this machine.

| in the file | here |
|---|---|
| `spark-master:7077`, a service and a port that it exposes | `127.0.0.1` and a free port |
| `localhost:8974`, `--port 7077`: a port that the service itself exposes | the same free port |
| a published port | the number that it is published under |
| `--host spark-master`, `SPARK_LOCAL_IP: spark-driver`: a service's name as a host | `127.0.0.1` |
| `0.0.0.0`, every address of a container | `127.0.0.1` |
| `/auth/...`, below a volume, a tmpfs or a folder of the image | a folder of this stack, or of this checkout |
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from omnigraph_ops.lance.text_indexer import home_of
from omnigraph_ops.spark.java import java_home
from tests.stack.compose import ROOT, Service
from tests.support.ports import free_port

HOST = "127.0.0.1"
PROJECT = "/opt/airflow/omnigraph"
"""Where the image has this checkout."""


@dataclass(slots=True)
class Machine:
    """One stack's share of this machine."""

    home: Path
    services: Mapping[str, Service]
    ports: dict[tuple[str, int], int] = field(default_factory=dict)
    """Ports by instance and the container's number."""

    def port(self, instance: str, number: int) -> int:
        """The port of this machine for one of a container. Reads."""
        service = self.services[service_of(instance, self.services)]
        key = (instance, number)
        if key not in self.ports:
            self.ports[key] = service.published.get(number) or free_port()
        return self.ports[key]

    def folder(self, instance: str, inside: str) -> Path:
        """The folder of this machine for a volume or tmpfs of a container. Writes."""
        service = self.services[service_of(instance, self.services)]
        name = service.volumes.get(inside) or f"{instance}{inside.replace('/', '-')}"
        made = self.home / "volumes" / name
        made.mkdir(parents=True, exist_ok=True)
        return made

    def here(self, text: str, instance: str) -> str:
        """A text of the file, said for this machine. Writes folders."""
        service = self.services[service_of(instance, self.services)]
        text = _Paths({**self._folders(instance, service), **_image_paths()}).replaced(text)
        names = "|".join(map(re.escape, self.services))
        own = "|".join(map(str, service.listens)) or "(?!)"
        # One pass, so that what was put in is not taken for something of the file.
        found = rf"\b(?P<name>{names}|localhost|127\.0\.0\.1|0\.0\.0\.0):(?P<port>\d+)|(?<![\d.:])(?P<own>{own})(?!\d)"
        text = re.sub(found, lambda match: self._address(match, instance), text)
        return text.replace("0.0.0.0", HOST)

    def value(self, text: str, instance: str) -> str:
        """The value of a variable or an option; it may be a host. Writes folders."""
        hosts = self.services.keys() | {alias for service in self.services.values() for alias in service.aliases}
        return HOST if text in hosts else self.here(text, instance)

    def words(self, words: Sequence[str], instance: str) -> list[str]:
        """A command line. Writes folders."""
        # Programs, commands and services share names: `airflow scheduler` is no host.
        return [
            self.value(word, instance) if before == "--host" else self.here(word, instance)
            for before, word in zip(("", *words), words, strict=False)
        ]

    def _address(self, match: re.Match[str], instance: str) -> str:
        if match["own"]:
            return str(self.port(instance, int(match["own"])))
        name, number = match["name"], int(match["port"])
        if name in self.services:
            return f"{HOST}:{self.port(instances(self.services[name])[0], number)}"
        listens = self.services[service_of(instance, self.services)].listens
        shown = name if name == "localhost" else HOST
        return f"{shown}:{self.port(instance, number)}" if number in listens else match[0]

    def _folders(self, instance: str, service: Service) -> dict[str, str]:
        return {inside: str(self.folder(instance, inside)) for inside in (*service.volumes, *service.temporary)}


class _Paths:
    """Folders of a container, the longest first."""

    def __init__(self, places: Mapping[str, str]) -> None:
        self._places = places
        names = "|".join(re.escape(inside) for inside in sorted(places, key=len, reverse=True))
        self._pattern = re.compile(rf"(?<![\w./-])({names})(?![\w-])")

    def replaced(self, text: str) -> str:
        return self._pattern.sub(lambda match: self._places[match[1]], text)


def image_environment() -> dict[str, str]:
    """What the image sets for every container of it. Reads."""
    text = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
    lines = re.findall(r"^ENV (.*)$", text, re.MULTILINE)
    return dict(re.findall(r"(\w+)=(\S+)", " ".join(lines)))


def _image_paths() -> dict[str, str]:
    return {PROJECT: str(ROOT), "/home/airflow/java": java_home(), "/home/airflow/text-indexers": str(home_of(None))}


def instances(service: Service) -> list[str]:
    """The containers of a service. Pure."""
    if service.replicas == 1:
        return [service.name]
    return [f"{service.name}-{number}" for number in range(1, service.replicas + 1)]


def service_of(instance: str, services: Mapping[str, Service]) -> str:
    """The service that a container belongs to. Pure."""
    return instance if instance in services else instance.rpartition("-")[0]
