"""Run the uv of this environment with the package index, certificates and proxy that pip is configured with.

    .venv/bin/python tools/uv.py pip install -r requirements.txt

uv reads no pip.conf and no PIP_* variable. What a person sets for uv itself (UV_*, SSL_CERT_FILE) wins.
"""

from __future__ import annotations

import ast
import os
import ssl
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

# The later source of an option wins, as in pip.
_SOURCES = ("global", "install", ":env:")
_FLAGS = {"1", "true", "yes", "on"}


def main(arguments: list[str]) -> None:
    """Become uv. Replaces this process."""
    uv, pip = Path(sys.executable).with_name("uv"), pip_options(pip_config())
    if arguments[:2] == ["pip", "install"] and pip.get("no-index", "").lower() in _FLAGS:
        # uv has no variable for this option.
        arguments = [*arguments, "--no-index"]
    os.execve(uv, [str(uv), *arguments], uv_environment(pip, os.environ))


def pip_config() -> str:
    """What `pip config list` prints: files and variables, each option with its source. Starts a process."""
    command = [sys.executable, "-m", "pip", "config", "list"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def pip_options(listed: str) -> dict[str, str]:
    """The options in force, from the output of `pip config list`. Pure."""
    found: dict[str, dict[str, str]] = {}
    for line in listed.splitlines():
        name, separator, value = line.partition("=")
        source, _, option = name.rpartition(".")
        if separator:
            found.setdefault(source, {})[option.replace("_", "-")] = str(ast.literal_eval(value))
    return {option: value for source in _SOURCES for option, value in found.get(source, {}).items()}


def uv_environment(pip: Mapping[str, str], own: Mapping[str, str]) -> dict[str, str]:
    """An environment that tells uv what pip is told; `own` variables win, but for the environment. Reads."""
    found = {
        # The interpreter that make found is the one to use.
        "UV_PYTHON_DOWNLOADS": "never",
        "UV_DEFAULT_INDEX": "" if "UV_INDEX_URL" in own else pip.get("index-url", ""),
        "UV_INDEX": " ".join(pip.get("extra-index-url", "").split()),
        "UV_FIND_LINKS": ",".join(filter(_is_there, pip.get("find-links", "").split())),
        "UV_INSECURE_HOST": " ".join(pip.get("trusted-host", "").split()),
        "UV_HTTP_TIMEOUT": pip.get("timeout") or pip.get("default-timeout", ""),
        "SSL_CERT_FILE": pip.get("cert", ""),
        "SSL_CLIENT_CERT": pip.get("client-cert", ""),
        "ALL_PROXY": pip.get("proxy", ""),
    }
    if found["UV_INDEX"]:
        # pip takes a package from whichever index has the version.
        found["UV_INDEX_STRATEGY"] = "unsafe-best-match"
    if not found["SSL_CERT_FILE"] and ssl.create_default_context().cert_store_stats()["x509_ca"]:
        # Newer releases of pip trust what the system trusts.
        found["UV_SYSTEM_CERTS"] = "true"
    # This environment, whichever one is active in the shell of the person.
    return {**{name: value for name, value in found.items() if value}, **own, "VIRTUAL_ENV": sys.prefix}


def _is_there(place: str) -> bool:
    """Whether a place of find-links can be read; pip passes over a missing folder, uv does not. Reads."""
    return "://" in place or Path(place).expanduser().is_dir()


if __name__ == "__main__":
    main(sys.argv[1:])
