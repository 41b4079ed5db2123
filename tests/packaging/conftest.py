"""Clean environments with the wheel of this checkout, made by uv from its cache."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tools.uv import pip_config, pip_options, uv_environment

ROOT = Path(__file__).resolve().parents[2]
UV = Path(sys.executable).with_name("uv")
_SECONDS = 500


@dataclass(frozen=True, slots=True)
class Installed:
    """An environment with the wheel in it, and nothing of this checkout."""

    home: Path

    @property
    def python(self) -> str:
        return str(self.home / "bin" / "python")

    def run(self, *command: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run a program of the environment in `folder`. Starts a process."""
        foreign = ("PYTHON", "VIRTUAL_ENV", "AIRFLOW")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
        program, *arguments = command
        return subprocess.run(
            [str(self.home / "bin" / program), *arguments],
            env={**kept, **variables},
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )

    def packages(self) -> set[str]:
        """The names of all packages. Starts a process."""
        listed = uv("pip", "list", "--python", self.python, "--format", "freeze")
        return {line.partition("==")[0] for line in listed.splitlines()}


class UvFailed(Exception):
    """uv ended with an error; its output is the message."""


def uv(*arguments: str) -> str:
    """Run uv with the index that pip is configured with; what it printed. Starts a process."""
    done = subprocess.run(
        [str(UV), *arguments],
        env=uv_environment(pip_options(pip_config()), os.environ),
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )
    if done.returncode != 0:
        raise UvFailed(done.stderr.strip())
    return done.stdout


def uv_from_cache(*arguments: str) -> str:
    """Run uv on its cache alone, else with the package index; skips where that is not reached. Starts a process."""
    try:
        return uv("--offline", *arguments)
    except UvFailed:
        try:
            return uv(*arguments)
        except UvFailed as error:
            unreached = [line.strip() for line in str(error).splitlines() if "Failed to fetch" in line]
            if not unreached:
                raise
            pytest.skip(f"neither uv's cache nor a package index has what the wheel needs: {unreached[0]}")


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout."""
    if not UV.exists():
        pytest.skip("uv is not in this environment: run make install")
    folder = tmp_path_factory.mktemp("wheel")
    uv_from_cache("build", "--wheel", "--out-dir", str(folder), str(ROOT))
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="session")
def installed(wheel: Path) -> Iterator[Callable[[str], Installed]]:
    """`installed("s3")`: an environment with that extra; `installed("")`: with none. Made once per session."""
    made: dict[str, Installed] = {}
    # On the disk of this environment: other temporary files may be in memory, and these are gigabytes.
    folder = tempfile.TemporaryDirectory(prefix="packaging-", dir=sys.prefix)

    def install(extra: str) -> Installed:
        if extra not in made:
            home = Path(folder.name, extra or "none", "venv")
            uv("venv", "--python", sys.executable, str(home))
            wanted = f"omnigraph-ops[{extra}] @ {wheel.as_uri()}" if extra else str(wheel)
            pins = ("--constraints", str(ROOT / "requirements.txt"))
            uv_from_cache("pip", "install", "--python", str(home / "bin" / "python"), *pins, wanted)
            made[extra] = Installed(home)
        return made[extra]

    with folder:
        yield install
