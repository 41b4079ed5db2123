"""Frozen dataclasses to and from JSON, with validation where foreign JSON enters (ADR 0004)."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from omnigraph_ops.errors import InvalidInput

T = TypeVar("T")


_ADAPTERS: dict[Any, TypeAdapter[Any]] = {}


def _adapter(cls: Any) -> TypeAdapter[Any]:
    # Building one costs milliseconds, and journals and leases come by often.
    if cls not in _ADAPTERS:
        _ADAPTERS[cls] = TypeAdapter(cls)
    return _ADAPTERS[cls]


def to_json(value: object) -> Any:
    """The JSON-ready form of a dataclass: enums as tokens, tuples as lists. Pure."""
    return _adapter(type(value)).dump_python(value, mode="json")


def from_json(cls: type[T], data: Any) -> T:
    """Rebuild `cls` from what `to_json` returned; `InvalidInput` names the first bad field. Pure."""
    raw = data if isinstance(data, (str, bytes)) else json.dumps(data)
    try:
        # Not lenient: a time that reads `true` would be one second after the epoch, and what it keeps would be gone.
        result: T = _adapter(cls).validate_json(raw, strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "document"
        raise InvalidInput(f"not a valid {getattr(cls, '__name__', cls)}: {where}: {first['msg']}") from None
    for field in dataclasses.fields(result) if dataclasses.is_dataclass(result) else ():
        value = getattr(result, field.name)
        if isinstance(value, float) and not math.isfinite(value):
            raise InvalidInput(f"not a valid {cls.__name__}: {field.name}: {value} is no finite number")
    return result


def dumps(value: object) -> str:
    """Pretty JSON text of a dataclass, the form that plan files and `--json` use. Pure."""
    return json.dumps(to_json(value), indent=2, ensure_ascii=False)


def digest(value: object) -> str:
    """`sha256:` of the canonical JSON of a dataclass: what an approval is bound to. Pure."""
    text = json.dumps(to_json(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()
