"""The schema contract files of both stamps, and the table layout that follows from them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Any

from omnigraph_ops.demo.spec import VECTOR_LENGTH, DemoProperty, DemoType
from omnigraph_ops.graph.layout import fnv1a32, fnv1a64
from omnigraph_ops.graph.schema import TableIdentity
from omnigraph_ops.graph.stamp6 import table_folder

_CARDINALITY = {"min": 0, "max": None}


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoTable:
    """One type with the place of its dataset."""

    type: DemoType
    path: str
    identity: TableIdentity | None

    @property
    def key(self) -> str:
        return self.type.table_key


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoContract:
    """The contents of the IR and state files, and the tables they declare."""

    ir_json: str
    state_json: str
    tables: tuple[DemoTable, ...]
    """Node types by name, then edge types by name."""


def contract(types: tuple[DemoType, ...], stamp: int, domain: str) -> DemoContract:
    """The contract of some types; `domain` is the identity domain of stamp 6. Pure."""
    ordered = tuple(sorted(types, key=lambda t: (t.ends is not None, t.name)))
    return _contract3(ordered) if stamp == 3 else _contract6(ordered, domain)


def digest(document: dict[str, Any]) -> str:
    """`sha256:` of the compact JSON, keys in the order given. Pure."""
    text = json.dumps(document, separators=(",", ":"), ensure_ascii=False)
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def schema_shape(types: tuple[DemoType, ...]) -> dict[str, Any]:
    """The identity-free shape that stamp 6 hashes. Pure."""
    ordered = sorted(types, key=lambda t: t.name)
    return {
        "interfaces": [],
        "nodes": [_shape(t) for t in ordered if t.ends is None],
        "edges": [_shape(t) for t in ordered if t.ends is not None],
    }


def _pretty(document: dict[str, Any]) -> str:
    return json.dumps(document, indent=2, ensure_ascii=False)


def _contract3(types: tuple[DemoType, ...]) -> DemoContract:
    ir = {
        "ir_version": 1,
        "interfaces": [],
        "nodes": [_type3(t) for t in types if t.ends is None],
        "edges": [_type3(t) for t in types if t.ends is not None],
    }
    state = {"format_version": 1, "schema_ir_hash": digest(ir), "schema_identity_version": 1}
    tables = tuple(DemoTable(type=t, path=f"{t.kind}s/{fnv1a64(t.name)}", identity=None) for t in types)
    return DemoContract(ir_json=_pretty(ir), state_json=_pretty(state), tables=tables)


def _type3(declared: DemoType) -> dict[str, Any]:
    head = {"name": declared.name, "type_id": fnv1a32(declared.table_key)} | _place(declared, str)
    properties = [
        {
            "name": p.name,
            "prop_id": fnv1a32(f"{declared.table_key}:{p.name}"),
            "prop_type": _prop_type(p),
            "annotations": [{"name": p.mark, "value": None}] if p.mark else [],
        }
        for p in declared.stored
    ]
    return head | {"properties": properties, "constraints": _named_constraints(declared)}


def _contract6(types: tuple[DemoType, ...], domain: str) -> DemoContract:
    ids = count(1)
    type_ids = {t.name: next(ids) for t in types}
    property_ids = {(t.name, p.name): next(ids) for t in types for p in t.stored}
    identities = {
        t.name: TableIdentity(stable_table_id=type_ids[t.name], table_incarnation_id=next(ids)) for t in types
    }
    entries = [(t, _type6(t, identities, property_ids)) for t in types]
    ir = {
        "ir_version": 2,
        "schema_identity_domain": domain,
        "next_identity_id": next(ids),
        "interfaces": [],
        "nodes": [entry for t, entry in entries if t.ends is None],
        "edges": [entry for t, entry in entries if t.ends is not None],
    }
    state = {
        "format_version": 2,
        "schema_shape_hash": digest(schema_shape(types)),
        "schema_ir_hash": digest(ir),
        "schema_identity_version": 2,
        "schema_identity_domain": domain,
    }
    tables = tuple(
        DemoTable(type=t, path=table_folder(t.kind, identities[t.name]), identity=identities[t.name]) for t in types
    )
    return DemoContract(ir_json=_pretty(ir), state_json=_pretty(state), tables=tables)


def _type6(
    declared: DemoType, identities: dict[str, TableIdentity], property_ids: dict[tuple[str, str], int]
) -> dict[str, Any]:
    own = identities[declared.name]
    head: dict[str, Any] = {
        "name": declared.name,
        "type_id": own.stable_table_id,
        "table_incarnation_id": own.table_incarnation_id,
    }
    head |= _place(declared, lambda name: {"type_id": identities[name].stable_table_id, "type_name": name})
    properties = [
        {"name": p.name, "property_id": property_ids[declared.name, p.name]} | _property_shape(p)
        for p in declared.stored
    ]
    constraints = [
        {
            "kind": p.mark,
            "fields": [
                {
                    "kind": "property",
                    "owner_type_id": own.stable_table_id,
                    "owner_type_name": declared.name,
                    "property_id": property_ids[declared.name, p.name],
                    "property_name": p.name,
                }
            ],
        }
        for p in _marked(declared)
    ]
    return head | {"properties": properties, "constraints": constraints}


def _shape(declared: DemoType) -> dict[str, Any]:
    return {
        "name": declared.name,
        **_place(declared, str),
        "properties": [{"name": p.name} | _property_shape(p) for p in declared.stored],
        "constraints": _named_constraints(declared),
    }


def _place(declared: DemoType, spelled: Callable[[str], Any]) -> dict[str, Any]:
    """What a type says beside its name and its properties; an edge, between which types it is, too. Pure."""
    if declared.ends is None:
        return {"annotations": [], "implements": []}
    first, second = map(spelled, declared.ends)
    return {"from_type": first, "to_type": second, "cardinality": _CARDINALITY, "annotations": []}


def _property_shape(prop: DemoProperty) -> dict[str, Any]:
    return {
        "prop_type": _prop_type(prop),
        "annotations": [],
        "property_constraints": [prop.mark] if prop.mark else [],
        "embed_source": None,
        "declared_directly": True,
        "satisfies_interface_properties": [],
    }


def _prop_type(prop: DemoProperty) -> dict[str, Any]:
    return {
        "scalar": {"Vector": VECTOR_LENGTH} if prop.scalar == "Vector" else prop.scalar,
        "nullable": prop.nullable,
        "list": False,
        "enum_values": None if prop.enum_values is None else list(prop.enum_values),
    }


def _marked(declared: DemoType) -> list[DemoProperty]:
    """Constraints are ordered by their text, `index:…` before `key:…`."""
    return sorted((p for p in declared.properties if p.mark), key=lambda p: f"{p.mark}:{p.name}")


def _named_constraints(declared: DemoType) -> list[dict[str, list[str]]]:
    return [{str(p.mark).capitalize(): [p.name]} for p in _marked(declared)]
