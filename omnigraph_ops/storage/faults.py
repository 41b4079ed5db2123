"""What a store or a file system refused, in words that say what to do about it."""

from __future__ import annotations

import re

_SOURCE = re.compile(r"[,;]?\s*(?:at )?(?:/|\b)[\w./+-]+\.rs:\d+(?::\d+)?")
"""Where Lance's own source raised an error: its text ends with one or more of these."""
_WRAPPED = re.compile(r"\b(?:External error|LanceError\(\w+\)|Generic N/A error|Wrapped error): ")
"""What Lance puts before the text of an error for each layer that it went through."""
_NO_CREDENTIALS = re.compile(r"Unable to locate credentials|CredentialsNotLoaded|NoCredentialsError")
_REMEDIES: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"No space left on device|quota exceeded", re.IGNORECASE), "free space there, then run again"),
    (re.compile("Read-only file system"), "mount that file system writable, or name another place"),
    (
        re.compile(r"Permission denied|Access ?Denied|\bForbidden\b", re.IGNORECASE),
        "give this account the rights of docs/reference/rights.md, then run again",
    ),
)


def first_line(error: BaseException) -> str:
    """The first line of an error, without the layers of Lance that it went through. Pure."""
    line = next(iter(str(error).strip().splitlines()), "")
    return _WRAPPED.sub("", _SOURCE.sub("", line)) or type(error).__name__


def reason_of(error: BaseException) -> str:
    """Why a store or a file system failed, and what to do about it where that is known. Pure.

    The number and the path of an error of the operating system are left out: the caller names what it was at.
    """
    text = first_line(error)
    if _NO_CREDENTIALS.search(text):
        return (
            "no credentials for S3 were found; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or "
            "give this machine a role"
        )
    if isinstance(error, OSError) and error.errno is not None and error.strerror:
        text = error.strerror
    remedy = next((remedy for pattern, remedy in _REMEDIES if pattern.search(text)), None)
    return text if remedy is None or text.endswith(remedy) else f"{text}; {remedy}"
