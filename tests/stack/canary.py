"""Where secrets of a stack turn up that belong nowhere but into the environment."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.stack.running import Stack

_SECRET = re.compile(r"_(PASSWORD|FERNET_KEY|JWT_SECRET|SECRET_KEY)$")
_DRIVER_PORTS = range(4040, 4056)
"""Where Spark puts the page of an application, counting up."""


def canaries(variables: Mapping[str, str]) -> dict[str, str]:
    """The secrets of an .env, by name. Pure."""
    return {name: value for name, value in variables.items() if _SECRET.search(name)}


def found_in(text: str | bytes, secrets: Mapping[str, str]) -> list[str]:
    """The names of the secrets that a text holds. Pure."""
    data = text.encode() if isinstance(text, str) else text
    return sorted(name for name, value in secrets.items() if value.encode() in data)


def found_in_files(folder: Path, secrets: Mapping[str, str], *, but: tuple[str, ...] = ()) -> dict[str, list[str]]:
    """Files that hold a secret, and which; `but` names files and folders of the folder. Reads."""
    leaks = {}
    for file in sorted(file for file in folder.rglob("*") if file.is_file()):
        name = str(file.relative_to(folder))
        if not any(name == skipped or name.startswith(f"{skipped}/") for skipped in but) and (
            names := found_in(name.encode() + file.read_bytes(), secrets)
        ):
            leaks[name] = names
    return leaks


def database_dump(stack: Stack) -> str:
    """Everything that Airflow keeps in PostgreSQL, as SQL. Starts a process."""
    environment = stack.environment(stack.services["postgres"], "postgres")
    address = ["--host", "127.0.0.1", "--port", str(stack.machine.port("postgres", 5432))]
    done = subprocess.run(
        ["pg_dump", *address, "--username", "airflow", "airflow"],
        env=environment | {"PGPASSWORD": stack.variables["POSTGRES_PASSWORD"]},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


class Watch:
    """Looks at the arguments of every process of a stack, and at what Spark's pages show, while it works."""

    def __init__(self, stack: Stack) -> None:
        self._stack, self._stop = stack, threading.Event()
        self.arguments: set[bytes] = set()
        self.pages: dict[str, str] = {}
        """The environment page of each Spark application that was seen."""

    @contextlib.contextmanager
    def running(self) -> Iterator[Watch]:
        """Watch for the block. Starts a thread."""
        thread = threading.Thread(target=self._look, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._stop.set()
            thread.join()

    def _look(self) -> None:
        while not self._stop.is_set():
            for pid in self._stack.pids():
                with contextlib.suppress(OSError):
                    self.arguments.add(Path(f"/proc/{pid}/cmdline").read_bytes())
            for port in _DRIVER_PORTS:
                with contextlib.suppress(OSError, ValueError):
                    self._page(port)
            time.sleep(0.3)

    def _page(self, port: int) -> None:
        api = f"http://127.0.0.1:{port}/api/v1/applications"
        for name in {application["id"] for application in json.loads(_get(api))} - set(self.pages):
            page = _get(f"{api}/{name}/environment").decode()
            # Another application of this machine may be at such a port.
            if f"127.0.0.1:{self._stack.machine.port('spark-master', 7077)}" in page:
                self.pages[name] = page


def _get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=2) as answer:
        data: bytes = answer.read()
        return data
