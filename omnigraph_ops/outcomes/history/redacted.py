"""What must not be kept: credentials in texts that came from elsewhere."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Sequence
from dataclasses import replace

from omnigraph_ops.models.history import RunRecord

HIDDEN = "***"
_SECRET_NAMES = re.compile(r"SECRET|TOKEN|PASSWORD|PASSWD|PRIVATE_KEY|ACCESS_KEY_ID|FERNET", re.IGNORECASE)
_SHORTEST = 8
"""Shorter values would blank out ordinary words."""
_USERINFO = re.compile(r"(?<=://)[^/\s@]+@")
_PARAMETER = re.compile(
    r"((?:X-Amz-(?:Signature|Credential|Security-Token)|sig|token|password|secret\w*|access_key\w*)\s*[=:]\s*)[^\s&,;'\"]+",
    re.IGNORECASE,
)


def redacted(text: str, secrets: Collection[str] = ()) -> str:
    """The text without user info of URLs, signatures, the given secrets, and those of the environment. Reads."""
    return _clean(text, _hidden_now(secrets))


def redacted_record(record: RunRecord, secrets: Collection[str] = ()) -> RunRecord:
    """The record with every free text redacted. Reads the environment."""
    hidden = _hidden_now(secrets)

    def clean(text: str) -> str:
        return _clean(text, hidden)

    return replace(
        record,
        header=replace(record.header, graph=clean(record.header.graph)),
        errors=tuple(map(clean, record.errors)),
        attention=tuple(map(clean, record.attention)),
        notes=tuple(map(clean, record.notes)),
        tables=tuple(
            replace(t, reason=clean(t.reason), error=None if t.error is None else clean(t.error)) for t in record.tables
        ),
    )


def _hidden_now(secrets: Collection[str]) -> tuple[str, ...]:
    """The given secrets and those of the environment, longer ones before what is part of them. Reads."""
    found = {v for name, v in os.environ.items() if _SECRET_NAMES.search(name) and len(v) >= _SHORTEST}
    return tuple(sorted({*found, *secrets}, key=len, reverse=True))


def _clean(text: str, hidden: Sequence[str]) -> str:
    for value in hidden:
        text = text.replace(value, HIDDEN)
    return _PARAMETER.sub(rf"\1{HIDDEN}", _USERINFO.sub(f"{HIDDEN}@", text))
