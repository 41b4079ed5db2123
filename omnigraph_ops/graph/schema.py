"""The accepted schema: its contract files, its tables, and what it says about one type."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tenacity import RetryCallState, Retrying, retry_if_exception_type, wait_chain, wait_fixed, wait_none

from omnigraph_ops.errors import ContractError, RecoveryPending
from omnigraph_ops.graph.layout import (
    SCHEMA_FILES,
    SCHEMA_IR_FILE,
    SCHEMA_SOURCE_FILE,
    SCHEMA_STATE_FILE,
    STAGING_SUFFIX,
)
from omnigraph_ops.models.optimize import IndexBuild
from omnigraph_ops.parallel import asked
from omnigraph_ops.storage.store import Storage

_BTREE_SCALARS = frozenset({"Bool", "I32", "I64", "U32", "U64", "F32", "F64", "Date", "DateTime"})
_READINGS, _READING_SECONDS = 12, 0.3
_BLANKS: Mapping[str, object] = {
    "String": "",
    "Bool": False,
    **dict.fromkeys(("I32", "I64", "U32", "U64", "F32", "F64"), 0),
    "Date": "1970-01-01",
    "DateTime": "1970-01-01T00:00:00Z",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TableIdentity:
    """The immutable identity of a table lifetime (stamp 6)."""

    stable_table_id: int
    table_incarnation_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Property:
    """One declared property, as far as maintenance cares."""

    name: str
    property_id: str
    """The engine's id. On stamp 6 no other property of the graph ever has it."""
    scalar: str
    """`String`, `Bool`, `I32` ... `Blob`, or `Vector`."""
    is_list: bool
    is_enum: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSpec:
    """One node or edge type of the accepted catalog."""

    table_key: str
    path: str | None
    """The canonical graph-relative path, None where only the graph manifest knows it."""
    properties: tuple[Property, ...]
    indexed: tuple[str, ...]
    """Properties with a single-column key or index declaration, in declaration order."""
    identity: TableIdentity | None = None

    @property
    def is_node(self) -> bool:
        return self.table_key.startswith("node:")

    @property
    def is_edge(self) -> bool:
        return self.table_key.startswith("edge:")

    @property
    def blob_columns(self) -> tuple[str, ...]:
        return tuple(p.name for p in self.properties if p.scalar == "Blob")

    def declared_indexes(self) -> tuple[IndexBuild, ...]:
        """Every index the engine would build for a table once it has rows, in its order; none of plain Lance. Pure."""
        if self.is_edge:
            return tuple(_btree(column) for column in ("id", "src", "dst"))
        if not self.is_node:  # its owner decides which indexes a dataset has
            return ()
        by_name = {p.name: p for p in self.properties}
        declared = [_btree("id")]
        for column in dict.fromkeys(self.indexed):
            build = _index_for(by_name[column]) if column in by_name else None
            if build is not None:
                declared.append(build)
        return tuple(declared)


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalog:
    """All tables of the accepted schema, sorted by key as strings (`edge:*` first)."""

    tables: tuple[TableSpec, ...]

    @property
    def identities(self) -> frozenset[tuple[str, TableIdentity | None]]:
        """Which tables the schema declares, by key and identity. Pure."""
        return frozenset((t.table_key, t.identity) for t in self.tables)

    def get(self, table_key: str) -> TableSpec | None:
        """The table of that key, None when the schema has no such type. Pure."""
        return next((t for t in self.tables if t.table_key == table_key), None)


def _btree(column: str) -> IndexBuild:
    return IndexBuild(column=column, index_type="BTREE", name=f"{column}_idx")


def _index_for(prop: Property) -> IndexBuild | None:
    """The index the engine builds for a declared property; lists and blobs get none. Pure."""
    if prop.is_list or prop.scalar == "Blob":
        return None
    if prop.scalar == "Vector":
        return IndexBuild(column=prop.name, index_type="IVF_FLAT", name=f"{prop.name}_idx")
    if prop.scalar == "String" and not prop.is_enum:
        return IndexBuild(column=prop.name, index_type="INVERTED", name=f"{prop.name}_idx")
    if prop.scalar in _BTREE_SCALARS or prop.scalar == "String":
        return _btree(prop.name)
    return None


# A JSON string is kept whole; white space outside of strings goes. Number tokens stay as written,
# which a parse and re-print in another language would not guarantee.
_COMPACT = re.compile(r'("(?:[^"\\]|\\.)*")|\s+')


def staging_files(storage: Storage) -> tuple[str, ...]:
    """Schema staging files: present only inside a schema apply, or after one crashed. Reads."""
    names = set(storage.list(""))
    return tuple(name + STAGING_SUFFIX for name in SCHEMA_FILES if name + STAGING_SUFFIX in names)


def is_half_staged(staged: Collection[str]) -> bool:
    """Whether a schema apply ended while it wrote these: the state file is written last and renamed last. Pure."""
    return bool(staged) and SCHEMA_STATE_FILE + STAGING_SUFFIX not in staged


def read_contract(storage: Storage, *, format_version: int, ir_version: int) -> Any:
    """Check and parse the contract files: the schema IR. Reads, and waits.

    A schema apply puts them in place one after the other: what disagrees is read again at once, and for three seconds
    while staging files say that some are still to come.

    Raises:
        RecoveryPending: an apply stopped between them.
        ContractError: names the file that is wrong.
    """
    staged: list[tuple[str, ...]] = []

    def is_last(attempt: RetryCallState) -> bool:
        staged.append(staging_files(storage))
        # What was there before a reading, and no longer after it, came into place meanwhile.
        return attempt.attempt_number == _READINGS or (attempt.attempt_number > 1 and not staged[-2])

    reading = Retrying(
        retry=retry_if_exception_type(ContractError),
        wait=wait_chain(wait_none(), wait_fixed(_READING_SECONDS)),
        stop=is_last,
        reraise=True,
    )
    try:
        return reading(_read_contract, storage, format_version=format_version, ir_version=ir_version)
    except ContractError:
        if not staged[-1]:
            raise
        raise RecoveryPending(
            f"the schema files of {storage.root} disagree, for a schema apply stopped before {', '.join(staged[-1])} "
            "came into place; nothing was written; open the graph read-write with omnigraph, which ends it"
        ) from None


def _read_contract(storage: Storage, *, format_version: int, ir_version: int) -> Any:
    ir_text, state_text, _ = asked(
        partial(_read_text, storage, SCHEMA_IR_FILE),
        partial(_read_text, storage, SCHEMA_STATE_FILE),
        partial(_read_text, storage, SCHEMA_SOURCE_FILE),
        at_once=not storage.is_local,
    )
    state = _object(storage, SCHEMA_STATE_FILE, state_text)
    ir = _object(storage, SCHEMA_IR_FILE, ir_text)
    _expect(storage, SCHEMA_STATE_FILE, state, "format_version", format_version)
    _expect(storage, SCHEMA_IR_FILE, ir, "ir_version", ir_version)
    ir_hash = "sha256:" + hashlib.sha256(_COMPACT.sub(r"\1", ir_text).encode()).hexdigest()
    if state.get("schema_ir_hash") != ir_hash:
        raise ContractError(
            f"{storage.root}/{SCHEMA_IR_FILE} does not match the hash in {SCHEMA_STATE_FILE}; nothing was "
            "written; restore both files from the same backup, or open the graph with omnigraph for its diagnosis"
        )
    return ir


def read_catalog(
    storage: Storage, *, format_version: int, ir_version: int, spec: Callable[[str, Any], TableSpec]
) -> Catalog:
    """The accepted catalog, each IR node and edge read by `spec`; raises `ContractError`. Reads."""
    ir = read_contract(storage, format_version=format_version, ir_version=ir_version)
    try:
        specs = [spec(kind, raw) for kind in ("node", "edge") for raw in ir[f"{kind}s"]]
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
        raise ContractError(f"{storage.root}/{SCHEMA_IR_FILE} is malformed ({error})") from None
    return Catalog(tables=tuple(sorted(specs, key=lambda s: s.table_key)))


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
        property_id=str(raw.get("property_id", raw.get("prop_id"))),
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


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeFacts:
    """One node or edge type, as far as addressing its rows goes."""

    name: str
    key: tuple[str, ...] = ()
    """Properties of the declared key of a node type."""
    plain_strings: tuple[str, ...] = ()
    """String properties without key, constraint, enum or a use by another property."""
    required_blobs: tuple[str, ...] = ()
    """Blobs that no row may lack."""
    blanks: Mapping[str, object] = field(default_factory=dict)
    """Of the other properties that no row may lack and that no constraint judges: a value that says nothing."""
    judged: tuple[str, ...] = ()
    """Properties outside the key that no row may lack and that a constraint judges."""
    vector_bytes: int = 0
    """Of a row in memory: a vector takes its bytes where it is null, too."""
    from_type: str | None = None
    to_type: str | None = None
    least: int = 0
    """Edges of an edge type that a node of `from_type` must have."""

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
    key = next((names for kind, names in constraints if kind == "key"), ())
    types = {p["name"]: p["prop_type"] for p in raw["properties"]}
    required = {name: prop_type for name, prop_type in types.items() if not prop_type["nullable"]}
    blobs = tuple(name for name, prop_type in required.items() if prop_type["scalar"] == "Blob")
    return TypeFacts(
        name=str(raw["name"]),
        key=key,
        plain_strings=tuple(
            p["name"] for p in raw["properties"] if _is_string(p["prop_type"]) and p["name"] not in bound | used
        ),
        required_blobs=blobs,
        blanks={name: _blank(required[name]) for name in required if name not in bound and name not in blobs},
        judged=tuple(name for name in required if name in bound and name not in key),
        vector_bytes=sum(4 * t["scalar"]["Vector"] for t in types.values() if isinstance(t["scalar"], dict)),
        from_type=_type_name(raw.get("from_type")),
        to_type=_type_name(raw.get("to_type")),
        least=raw.get("cardinality", {}).get("min", 0),
    )


def _constraint(raw: dict[str, Any]) -> tuple[str, tuple[str, ...]]:
    """Kind and properties of a constraint in either spelling: `{"Key": [...]}`, `{"kind": "key", ...}`. Pure."""
    if "kind" not in raw:
        kind, names = next(iter(raw.items()))
        return kind.lower(), tuple(_strings(names))
    return str(raw["kind"]), tuple(_strings([f.get("property_name") for f in raw.get("fields", ())] or raw))


def _is_string(prop_type: dict[str, Any]) -> bool:
    return prop_type["scalar"] == "String" and not prop_type["list"] and prop_type["enum_values"] is None


def _blank(prop_type: dict[str, Any]) -> object:
    """A value of that type as a line of the engine's load has it. Pure."""
    scalar = prop_type["scalar"]
    if prop_type["list"]:
        return []
    if prop_type["enum_values"] is not None:
        return prop_type["enum_values"][0]
    return [1] * int(scalar["Vector"]) if isinstance(scalar, dict) else _BLANKS[scalar]


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
