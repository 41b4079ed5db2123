"""What an image does before a container's command, where this machine has to do it instead."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.stack.compose import ROOT, Service

VERSITYGW = ROOT / ".stack" / "bin" / "versitygw"
_DEBIAN = Path("/usr/lib/postgresql")


class Missing(Exception):
    """This machine lacks a program; the message says which and how to get it."""


def arguments(service: Service, words: list[str]) -> list[str]:
    """The whole command of a container: its words after what the image puts before them. Reads."""
    if service.image.startswith("versity/versitygw"):
        return [str(VERSITYGW), *words]
    return words


def prepare(service: Service, environment: Mapping[str, str]) -> None:
    """What the image does on a new volume. Writes."""
    if service.image.startswith("postgres:") and not Path(environment["PGDATA"], "PG_VERSION").exists():
        _make_database(environment)


def user(service: Service) -> str | None:
    """Who a container's process has to be, None: whoever runs this. Reads."""
    # PostgreSQL refuses to run as root, and its image does not try to.
    return "postgres" if service.image.startswith("postgres:") and os.geteuid() == 0 else None


def search_path() -> str:
    """PATH with the programs of this virtual environment and of PostgreSQL. Reads."""
    return os.pathsep.join([str(Path(sys.executable).parent), str(postgres_programs()), os.environ["PATH"]])


def postgres_programs() -> Path:
    """The folder with initdb and postgres, which Debian keeps off PATH; `Missing` without one. Reads."""
    newest = sorted(_DEBIAN.glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    found = newest[-1] if newest else shutil.which("initdb")
    if not found:
        raise Missing("PostgreSQL was not found; install it (Debian: apt-get install postgresql) and run again")
    return Path(found).parent


def _make_database(environment: Mapping[str, str]) -> None:
    """A cluster with one user and one database, as the image makes it. Writes."""
    name, data = environment["POSTGRES_USER"], Path(environment["PGDATA"])
    password = data.with_name("password")
    password.touch(mode=0o600)
    password.write_text(environment["POSTGRES_PASSWORD"])
    if os.geteuid() == 0:
        for path in (data.parent, password):
            shutil.chown(path, "postgres", "postgres")
    rights = ("--username", name, "--auth", "scram-sha-256", "--pwfile", str(password))
    _run(environment, "initdb", *rights, "--pgdata", str(data))
    password.unlink()
    # Offline, before anything listens.
    _run(environment, "postgres", "--single", "-D", str(data), "postgres", said=f"CREATE DATABASE {name}\n")


def _run(environment: Mapping[str, str], *command: str, said: str = "") -> None:
    owner = "postgres" if os.geteuid() == 0 else None
    done = subprocess.run(
        command,
        input=said,
        env=dict(environment),
        cwd=Path(environment["PGDATA"]).parent,
        capture_output=True,
        text=True,
        check=False,
        user=owner,
        group=owner,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{command[0]} failed: {done.stderr.strip()}")
