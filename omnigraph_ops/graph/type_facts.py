"""What the accepted schema says about one type: its key, its ends, and which strings are nothing but values."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from omnigraph_ops.errors import ContractError
from omnigraph_ops.graph.layout import SCHEMA_IR_FILE
from omnigraph_ops.storage.store import Storage


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeFacts:
    """One node or edge type, as far as addressing its rows goes."""

    name: str
    key: tuple[str, ...] = ()
    """Properties of the declared key of a node type."""
    plain_strings: tuple[str, ...] = ()
    """String properties without key, constraint, enum or a use by another property."""
    from_type: str | None = None
    to_type: str | None = None

    def ends_at(self, node_type: str) -> tuple[str, ...]:
        """The columns of an edge table that hold ids of a node type. Pure."""
        ends = (("src", self.from_type), ("dst", self.to_type))
        return tuple(column for column, type_name in ends if type_name == node_type)


def read_type_facts(storage: Storage) -> dict[str, TypeFacts]:
    """The facts of every declared type by table key; raises `ContractError`. Reads."""
    try:
        ir = json.loads(storage.read(SCHEMA_IR_FILE))
        return {f"{kind}:{raw['name']}": _facts(raw) for kind in ("node", "edge") for raw in ir[f"{kind}s"]}
    except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ContractError(f"{storage.root}/{SCHEMA_IR_FILE} is malformed ({error}); nothing was written") from None


def _facts(raw: dict[str, Any]) -> TypeFacts:
    constraints = [_constraint(c) for c in raw["constraints"]]
    bound = {name for kind, names in constraints if kind != "index" for name in names}
    used = set(_strings([[p["annotations"], p.get("embed_source")] for p in raw["properties"]]))
    return TypeFacts(
        name=str(raw["name"]),
        key=next((names for kind, names in constraints if kind == "key"), ()),
        plain_strings=tuple(
            p["name"] for p in raw["properties"] if _is_string(p["prop_type"]) and p["name"] not in bound | used
        ),
        from_type=_type_name(raw.get("from_type")),
        to_type=_type_name(raw.get("to_type")),
    )


def _constraint(raw: dict[str, Any]) -> tuple[str, tuple[str, ...]]:
    """Kind and properties of a constraint in either spelling: `{"Key": [...]}`, `{"kind": "key", ...}`. Pure."""
    if "kind" not in raw:
        kind, names = next(iter(raw.items()))
        return kind.lower(), tuple(_strings(names))
    return str(raw["kind"]), tuple(_strings([f.get("property_name") for f in raw.get("fields", ())] or raw))


def _is_string(prop_type: dict[str, Any]) -> bool:
    return prop_type["scalar"] == "String" and not prop_type["list"] and prop_type["enum_values"] is None


def _type_name(raw: Any) -> str | None:
    return str(raw["type_name"]) if isinstance(raw, dict) else raw


def _strings(value: Any) -> Iterator[str]:
    """Every text inside a JSON value. Pure."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from _strings(list(value.values()))
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item)
