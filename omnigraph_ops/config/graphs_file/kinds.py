"""The kinds of values in a graphs file that need a check of their own."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import time
from typing import Annotated, Any
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, BeforeValidator, StringConstraints, WithJsonSchema

from omnigraph_ops.config.graphs_file.cron import check_cron
from omnigraph_ops.durations import DURATION, duration, parse_duration
from omnigraph_ops.errors import InvalidInput
from omnigraph_ops.models.cleanup import SHORTEST_AGE_SECONDS
from omnigraph_ops.sizes import parse_bytes
from omnigraph_ops.storage.location import graph_root, locate

NAME = r"[a-z][a-z0-9_-]{0,63}"
"""What a graph may be called: it becomes part of DAG ids, asset URIs and links. Templates make numbers of digits."""
_CLASS = r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+"
_WINDOW = re.compile(r"(\d\d:\d\d)-(\d\d:\d\d)")


def _checked(check: Callable[[str], object]) -> AfterValidator:
    def validate(text: str) -> str:
        try:
            check(text)
        except InvalidInput as error:
            raise ValueError(str(error)) from None
        return text

    return AfterValidator(validate)


def _as_text(value: Any) -> Any:
    return str(value) if type(value) is int else value


def hours_of(text: str) -> tuple[time, time]:
    """The two ends of a window as in `22:00-06:00`; `InvalidInput` otherwise. Pure."""
    found = _WINDOW.fullmatch(text)
    try:
        start, end = (time.fromisoformat(part) for part in found.groups()) if found else (None, None)
    except ValueError:
        start = end = None
    if start is None or end is None or start == end:
        raise InvalidInput(f"'{text}' is not a window of the day, as in 22:00-06:00")
    return start, end


def _check_timezone(text: str) -> None:
    try:
        ZoneInfo(text)
    except (KeyError, OSError, ValueError):
        raise InvalidInput(f"'{text}' is not a time zone, as in Europe/Berlin") from None


def _check_place(text: str) -> None:
    if text.strip() and "://" not in text and not text.startswith("/"):
        raise InvalidInput(f"'{text}' is relative, and every worker has a working directory of its own")
    locate(text)


def _check_graph_id(text: str) -> None:
    graph_root("", text)


def _check_age(text: str) -> None:
    if parse_duration(text) < SHORTEST_AGE_SECONDS:
        least = duration(SHORTEST_AGE_SECONDS)
        raise InvalidInput(f"'{text}' takes versions that a running query may still read; write at least {least}")


Name = Annotated[str, StringConstraints(pattern=f"^{NAME}$")]
Text = Annotated[str, StringConstraints(min_length=1, strip_whitespace=True)]
Label = Annotated[str, StringConstraints(min_length=1, max_length=100, strip_whitespace=True)]
"""What Airflow takes as a tag: a longer one would cost every graph of the file its DAG."""
Place = Annotated[str, StringConstraints(min_length=1), _checked(_check_place)]
GraphId = Annotated[str, StringConstraints(min_length=1), _checked(_check_graph_id)]
ClassPath = Annotated[str, StringConstraints(pattern=f"^{_CLASS}$")]
AssetUri = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9+.-]*:\S+$|^[^\s:]+$")]
Duration = Annotated[
    str,
    BeforeValidator(_as_text),
    _checked(parse_duration),
    WithJsonSchema({"type": "string", "pattern": DURATION}),
]
Age = Annotated[Duration, _checked(_check_age)]
"""Of versions that may go."""
Size = Annotated[
    str,
    BeforeValidator(_as_text),
    _checked(parse_bytes),
    WithJsonSchema({"type": ["string", "integer"], "pattern": r"^\d{1,18}\s*([kKmMgGtT]?i?[bB]?)$", "minimum": 0}),
]
Cron = Annotated[str, _checked(check_cron)]
Hours = Annotated[str, _checked(hours_of)]
Timezone = Annotated[str, _checked(_check_timezone)]
