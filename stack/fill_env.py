"""Gives every empty variable of .env.example a random value in .env; what .env holds already stays.

Standard library only: it runs before anything is installed.
"""

from __future__ import annotations

import base64
import os
import re
import secrets
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_LINE = re.compile(r"^(\w+)=(.*)$", re.MULTILINE)


def secret(name: str) -> str:
    """A new value for a variable; safe in a URL. Random."""
    if name == "AIRFLOW_FERNET_KEY":
        return base64.urlsafe_b64encode(secrets.token_bytes(32)).decode()
    if name.endswith("_ACCESS_KEY"):
        return secrets.token_hex(10)
    return secrets.token_hex(32 if name.startswith("AIRFLOW_JWT") else 16)


def filled(example: str, existing: str = "") -> dict[str, str]:
    """Every variable of the example: as it is already, else its default, else a secret. Random."""
    kept = {name: value for name, value in _LINE.findall(existing) if value}
    return {name: kept.get(name) or value or secret(name) for name, value in _LINE.findall(example)}


def write(target: Path, values: dict[str, str]) -> None:
    """Put the variables into a file that only its owner reads, in one step. Writes."""
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.writelines(f"{name}={value}\n" for name, value in values.items())
    temporary.replace(target)


def main() -> int:
    """Make or complete .env. Writes."""
    target = ROOT / ".env"
    before = target.read_text() if target.exists() else ""
    known = dict(_LINE.findall(before))
    values = filled((ROOT / ".env.example").read_text(), before)
    extra = {name: value for name, value in known.items() if name not in values}
    if {**values, **extra} != known:
        write(target, {**values, **extra})
    made = sorted(name for name in values if not known.get(name))
    sys.stdout.write(f".env: {len(made)} of {len(values)} variables are new\n" if made else ".env is complete\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
