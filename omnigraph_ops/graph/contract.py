"""The schema contract files: both present, well formed, of a known version, and agreeing."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from omnigraph_ops.errors import ContractError
from omnigraph_ops.graph.catalog import Catalog, Property, TableSpec
from omnigraph_ops.graph.layout import (
    SCHEMA_FILES,
    SCHEMA_IR_FILE,
    SCHEMA_SOURCE_FILE,
    SCHEMA_STATE_FILE,
    STAGING_SUFFIX,
)
from omnigraph_ops.storage.store import Storage

# A JSON string is kept whole; white space outside of strings goes. Number tokens stay as written,
# which a parse and re-print in another language would not guarantee.
_COMPACT = re.compile(r'("(?:[^"\\]|\\.)*")|\s+')


@dataclass(frozen=True, slots=True, kw_only=True)
class Contract:
    """The parsed schema IR and state of a graph whose files agree."""

    ir: Any
    ir_hash: str
    format_version: int


def staging_files(storage: Storage) -> tuple[str, ...]:
    """Schema staging files: present only inside a schema apply, or after one crashed. Reads."""
    names = set(storage.list(""))
    return tuple(name + STAGING_SUFFIX for name in SCHEMA_FILES if name + STAGING_SUFFIX in names)


def read_contract(storage: Storage, *, format_version: int, ir_version: int) -> Contract:
    """Check and parse the contract files; `ContractError` names the file that is wrong. Reads."""
    ir_text = _read_text(storage, SCHEMA_IR_FILE)
    state = _object(storage, SCHEMA_STATE_FILE, _read_text(storage, SCHEMA_STATE_FILE))
    ir = _object(storage, SCHEMA_IR_FILE, ir_text)
    _read_text(storage, SCHEMA_SOURCE_FILE)
    _expect(storage, SCHEMA_STATE_FILE, state, "format_version", format_version)
    _expect(storage, SCHEMA_IR_FILE, ir, "ir_version", ir_version)
    ir_hash = "sha256:" + hashlib.sha256(_COMPACT.sub(r"\1", ir_text).encode()).hexdigest()
    if state.get("schema_ir_hash") != ir_hash:
        raise ContractError(
            f"{storage.root}/{SCHEMA_IR_FILE} does not match the hash in {SCHEMA_STATE_FILE}; nothing was "
            "written; restore both files from the same backup, or open the graph with omnigraph for its diagnosis"
        )
    return Contract(ir=ir, ir_hash=ir_hash, format_version=format_version)


def read_catalog(
    storage: Storage, *, format_version: int, ir_version: int, spec: Callable[[str, Any], TableSpec]
) -> Catalog:
    """The accepted catalog, each IR node and edge read by `spec`; raises `ContractError`. Reads."""
    contract = read_contract(storage, format_version=format_version, ir_version=ir_version)
    try:
        specs = [spec(kind, raw) for kind in ("node", "edge") for raw in contract.ir[f"{kind}s"]]
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
        raise ContractError(f"{storage.root}/{SCHEMA_IR_FILE} is malformed ({error})") from None
    return Catalog(tables=tuple(sorted(specs, key=lambda s: s.table_key)), schema_ir_hash=contract.ir_hash)


def parse_properties(table_key: str, raw: Any) -> tuple[Property, ...]:
    """Properties of one IR node or edge; `ContractError` for a shape no engine writes. Pure."""
    try:
        return tuple(_property(p) for p in raw["properties"])
    except (KeyError, TypeError) as error:
        raise ContractError(f"{SCHEMA_IR_FILE}: {table_key} has a malformed property ({error})") from None


def _property(raw: Any) -> Property:
    kind = raw["prop_type"]
    scalar = kind["scalar"]
    return Property(
        name=str(raw["name"]),
        scalar=scalar if isinstance(scalar, str) else str(next(iter(scalar))),
        is_list=bool(kind["list"]),
        is_enum=kind["enum_values"] is not None,
    )


def _read_text(storage: Storage, name: str) -> str:
    try:
        return storage.read(name).decode()
    except FileNotFoundError:
        raise ContractError(f"{storage.root}/{name} is missing; nothing was written") from None
    except UnicodeDecodeError:
        raise ContractError(f"{storage.root}/{name} is not UTF-8 text; nothing was written") from None


def _object(storage: Storage, name: str, text: str) -> dict[str, Any]:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ContractError(f"{storage.root}/{name} is not valid JSON ({error}); nothing was written") from None
    if not isinstance(data, dict):
        raise ContractError(f"{storage.root}/{name} is not a JSON object; nothing was written")
    return data


def _expect(storage: Storage, name: str, data: dict[str, Any], key: str, value: int) -> None:
    found = data.get(key)
    if type(found) is not int or found != value:
        raise ContractError(
            f"{storage.root}/{name} has {key} {found!r}, this generation uses {value}; nothing was written"
        )
