"""Random schemas of the engine, with rows that fit them and queries that their indexes answer."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

Row = dict[str, Any]
# No stop words: an engine finds them as long as no index covers the rows.
_WORDS = ("lance", "graphs", "running", "ponies", "Überall", "naïve", "relational", "x1", "日本")
_DIMENSION = 4
_ENUM, _WIDER = "enum(free, pro, team)", "enum(free, pro, team, vast)"
Draw = Callable[[random.Random], Any]


def _number(bits: int, *, signed: bool) -> Draw:
    least, most = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    # JSON numbers beyond 2**53 are not exact everywhere.
    edges = [n for n in (least, most) if abs(n) < 2**53]
    return lambda draw: draw.choice([*edges, 0, 1, draw.randrange(max(least, -50), min(most, 50))])


def _text(draw: random.Random) -> str:
    return " ".join(draw.choices(_WORDS, k=draw.randrange(6)))


def _vector(draw: random.Random) -> list[float]:
    return [draw.randrange(1, 9) / 4 for _ in range(_DIMENSION)]


SCALARS: dict[str, Draw] = {
    "String": _text,
    "Bool": lambda draw: draw.random() < 0.5,
    "I32": _number(32, signed=True),
    "I64": _number(64, signed=True),
    "U32": _number(32, signed=False),
    "U64": _number(64, signed=False),
    "F32": lambda draw: draw.randrange(-8, 8) / 4,
    "F64": lambda draw: draw.choice([0.0, 1e300, -1e-300, draw.randrange(-99, 99) / 8]),
    "Date": lambda draw: f"20{draw.randrange(10, 30)}-0{draw.randrange(1, 10)}-1{draw.randrange(10)}",
    "DateTime": lambda draw: f"2024-01-0{draw.randrange(1, 10)}T0{draw.randrange(10)}:00:00Z",
    _ENUM: lambda draw: draw.choice(["free", "pro", "team"]),
    _WIDER: lambda draw: draw.choice(["free", "pro", "team", "vast"]),
}
VALUES: dict[str, Draw] = SCALARS | {
    "[String]": lambda draw: draw.choices(_WORDS, k=draw.randrange(3)),
    "[I64]": lambda draw: [draw.randrange(9) for _ in range(draw.randrange(3))],
    "Blob": lambda draw: "base64:" + base64.b64encode(draw.randbytes(draw.choice([1, 9, 3000]))).decode(),
    f"Vector({_DIMENSION})": _vector,
}
_INDEXED = [*sorted(SCALARS), f"Vector({_DIMENSION})"]
KEYS: dict[str, Callable[[int], Any]] = {
    "String": str,
    "I64": int,
    "U32": int,
    "Date": lambda number: f"20{number // 300 + 10}-{number // 25 % 12 + 1:02}-{number % 25 + 1:02}",
}
"""By the type of a key, the value that stands for a number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Property:
    """A property of a type, in the order of its declaration."""

    name: str
    type: str
    nullable: bool
    indexed: bool
    was: str = ""
    """Its name before the schema apply that renames it."""

    @property
    def line(self) -> str:
        return f"    {self.name}: {self.type}{'?' * self.nullable}{' @index' * self.indexed}{_renamed(self.was)}\n"

    def value(self, draw: random.Random) -> Any:
        return None if self.nullable and draw.random() < 0.25 else VALUES[self.type](draw)


@dataclass(frozen=True, slots=True, kw_only=True)
class Constraint:
    """Of the body of a type, about some of its properties."""

    word: str
    names: tuple[str, ...]
    more: str = ""
    """A further argument, after a comma."""

    @property
    def line(self) -> str:
        return f"    @{self.word}({', '.join(self.names)}{self.more})\n"


_ANY = (Constraint(word="unique", names=("key",)), Constraint(word="key", names=("key",)))
_POSSIBLE: dict[str, tuple[Constraint, ...]] = {
    "String": (*_ANY, Constraint(word="check", names=(), more=', ".*"')),
    "Bool": _ANY,
    "I32": (*_ANY, Constraint(word="range", names=(), more=", -2147483648..2147483647")),
    "U32": (*_ANY, Constraint(word="range", names=(), more=", 0..")),
    "I64": _ANY,
    "Date": _ANY,
    _ENUM: _ANY,
}
"""By the type of a property, what may be said of it, after other names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A node type, or an edge type where it has ends."""

    name: str
    properties: tuple[Property, ...]
    ends: tuple[str, str] | None = None
    was: str = ""
    """Its name before the schema apply that renames it."""
    key: str = "String"
    """The type of its key."""
    constraints: tuple[Constraint, ...] = ()
    shared: tuple[Property, ...] = ()
    """What an interface of its own declares for it."""
    cardinality: str = ""

    @property
    def declaration(self) -> str:
        body = "".join([p.line for p in self.properties] + [c.line for c in self.constraints])
        if self.ends is not None:
            head = f"edge {self.name}: {self.ends[0]} -> {self.ends[1]}{self.cardinality}"
            return f"{head} {{\n{body}}}\n" if body else f"{head}\n"
        whole = f"{{\n    key: {self.key}{'' if self.composite else ' @key'}\n{body}}}\n"
        if not self.shared:
            return f"node {self.name}{_renamed(self.was)} {whole}"
        contract = f"interface Has{self.name} {{\n{''.join(p.line for p in self.shared)}}}\n"
        return f"{contract}node {self.name}{_renamed(self.was)} implements Has{self.name} {whole}"

    @property
    def linked(self) -> bool:
        """Whether edges name its rows by the number alone."""
        return self.key != "Date" and not self.composite

    @property
    def everything(self) -> tuple[Property, ...]:
        return (*self.properties, *self.shared)

    @property
    def composite(self) -> bool:
        return any(c.word == "key" for c in self.constraints)

    def without(self, name: str) -> Kind:
        """With no constraint about the property."""
        return replace(self, constraints=tuple(c for c in self.constraints if name not in c.names))

    def naming(self, was: str, name: str) -> Kind:
        """With the new name in its constraints."""
        return replace(
            self,
            constraints=tuple(
                replace(c, names=tuple(name if one == was else one for one in c.names)) for c in self.constraints
            ),
        )

    def data(self, draw: random.Random) -> Row:
        drawn = {p.name: p.value(draw) for p in self.everything}
        return {name: value for name, value in drawn.items() if value is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Schema:
    """Some node types and edge types."""

    nodes: tuple[Kind, ...]
    edges: tuple[Kind, ...]

    @property
    def text(self) -> str:
        return "".join(kind.declaration for kind in (*self.nodes, *self.edges))

    def evolved(self, draw: random.Random, number: int) -> Schema:
        """The same after one change that the engine applies; `number` makes new names."""
        kind = draw.choice(self.nodes)
        of, one = list(kind.properties), draw.randrange(len(kind.properties)) if kind.properties else None
        change = draw.choice(("add", "constrain", "index", "drop", "rename", "rename type", "widen"))
        if change == "rename type":
            return self._with(kind, replace(kind, name=f"Renamed{number}", was=kind.name))
        if change == "constrain":
            return self._with(kind, replace(kind, constraints=_constraints(draw, kind.properties)))
        if change == "add" or one is None:
            of.append(replace(_properties(draw, 1, sorted(VALUES))[0], name=f"more{number}", nullable=True))
        elif change == "index":
            of[one] = replace(of[one], indexed=of[one].type in _INDEXED)
        elif change == "widen":
            of = [replace(p, type=_WIDER if p.type == _ENUM else p.type) for p in of]
        elif change == "drop":
            kind = kind.without(of.pop(one).name)
        else:
            kind = kind.naming(of[one].name, f"renamed{number}")
            of[one] = replace(of[one], name=f"renamed{number}", was=of[one].name)
        return self._with(kind, replace(kind, properties=tuple(of)))

    def settled(self) -> Schema:
        """The same once it is applied: nothing is to be renamed any more."""
        return Schema(nodes=tuple(map(_settled, self.nodes)), edges=tuple(map(_settled, self.edges)))

    def _with(self, kind: Kind, other: Kind) -> Schema:
        names = {kind.name: other.name}
        return Schema(
            nodes=tuple(other if k.name == kind.name else k for k in self.nodes),
            edges=tuple(
                replace(e, ends=(names.get(e.ends[0], e.ends[0]), names.get(e.ends[1], e.ends[1]))) if e.ends else e
                for e in self.edges
            ),
        )

    def rows(self, draw: random.Random, start: int, count: int) -> list[Row]:
        """So many rows of each node type, keyed by number from `start` on, and edges between any that may exist."""
        made: list[Row] = []
        for kind in self.nodes:
            for number in range(start, start + count):
                made.append({"type": kind.name, "data": {"key": KEYS[kind.key](number), **kind.data(draw)}})
        return made

    def links(self, draw: random.Random, start: int, count: int) -> list[Row]:
        """Edges whose ends are among these rows."""
        return [
            {
                "edge": kind.name,
                "from": f"{draw.randrange(start, start + count)}",
                "to": f"{draw.randrange(start, start + count)}",
                "data": kind.data(draw),
            }
            for kind in self.edges
            for _ in range(count)
        ]


def _renamed(was: str) -> str:
    return f' @rename_from("{was}")' if was else ""


def _settled(kind: Kind) -> Kind:
    return replace(kind, was="", properties=tuple(replace(p, was="") for p in kind.properties))


def drawn_schema(draw: random.Random, keys: Sequence[str]) -> Schema:
    """One to three node types, with keys of these types, and up to two edge types; properties of every kind."""
    nodes = tuple(_node(draw, number, draw.choice(keys)) for number in range(draw.randrange(1, 4)))
    ends = [kind.name for kind in nodes if kind.linked]
    edges = tuple(_edge(draw, number, ends) for number in range(draw.randrange(3)) if ends)
    return Schema(nodes=nodes, edges=edges)


def _node(draw: random.Random, number: int, key: str) -> Kind:
    properties = _properties(draw, draw.randrange(1, 7), sorted(VALUES))
    shared = _properties(draw, draw.choice((0, 0, 1, 2)), sorted(SCALARS))
    return Kind(
        name=f"{draw.choice(('Doc', 'My_Thing', 'T'))}{number}",
        properties=properties,
        key=key,
        constraints=_constraints(draw, properties),
        shared=tuple(replace(p, name=f"shared{n}") for n, p in enumerate(shared)),
    )


def _edge(draw: random.Random, number: int, ends: list[str]) -> Kind:
    properties = _properties(draw, draw.randrange(3), sorted(SCALARS))
    indexes = tuple(Constraint(word="index", names=(p.name,)) for p in properties if draw.random() < 0.3)
    return Kind(
        name=f"Links{number}",
        properties=properties,
        ends=(draw.choice(ends), draw.choice(ends)),
        constraints=indexes,
        cardinality=draw.choice(("", " @card(0..)", " @card(0..500)")),
    )


def _constraints(draw: random.Random, properties: tuple[Property, ...]) -> tuple[Constraint, ...]:
    """Some, in the body; every row that is drawn keeps them."""
    made: list[Constraint] = []
    for p in properties:
        keyed = p.nullable or any(c.word == "key" for c in made)
        of = [c for c in _POSSIBLE.get(p.type, ()) if not (keyed and c.word == "key")]
        if of and draw.random() < 0.3:
            drawn = draw.choice(of)
            made.append(replace(drawn, names=(*drawn.names, p.name)))
    indexed = [p.name for p in properties if p.type in SCALARS]
    if len(indexed) > 1 and draw.random() < 0.3:
        made.append(Constraint(word="index", names=tuple(draw.sample(indexed, 2))))
    return tuple(made)


def _properties(draw: random.Random, count: int, types: list[str]) -> tuple[Property, ...]:
    found = []
    for number in range(count):
        kind = draw.choice(types)
        indexed = kind in _INDEXED and draw.random() < 0.6
        found.append(Property(name=f"p{number}", type=kind, nullable=draw.random() < 0.6, indexed=indexed))
    return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A query, and of one by a word the property that is searched."""

    text: str
    kind: str
    property: str = ""
    word: str = ""

    def saying(self, rows: list[Row]) -> set[str]:
        """Keys of the rows that have the word now. Pure."""
        texts = {str(r["data"]["key"]): r["data"].get(self.property) or "" for r in rows if r["type"] == self.kind}
        return {key for key, text in texts.items() if self.word in text.split()}


def questions(schema: Schema, draw: random.Random, row: Row) -> list[Question]:
    """Queries about one row, by every property that can be asked for, and about its edges."""
    kind = next(k for k in schema.nodes if k.name == row["type"])
    key, data = row["data"]["key"], row["data"]

    def asked(where: str, found: str = "$n.key", **more: str) -> Question:
        return Question(text=f"match {{ $n: {kind.name} {where} }} return {{ {found} }}", kind=kind.name, **more)

    keyed = f"{{ key: {_literal(key)} }}"
    made = [] if kind.key == "Date" else [asked(keyed)]
    for p in kind.everything:
        value = data.get(p.name)
        if value is None:
            continue
        if p.type in SCALARS and p.type not in {"F32", "F64", "DateTime", "Date"}:
            made.append(asked(f"{{ {p.name}: {_literal(value)} }}"))
        if p.type in {"I32", "I64", "U32", "U64"}:
            made.append(asked(f"$n.{p.name} >= {_literal(value)}"))
        if p.type == "String" and p.indexed and value:
            word = draw.choice(value.split())
            made.append(asked(f'search($n.{p.name}, "{word}")', property=p.name, word=word))
    for edge in schema.edges:
        if edge.ends is not None and edge.ends[0] == kind.name:
            name = edge.name[0].lower() + edge.name[1:]
            made.append(asked(f"{keyed} $n {name} $m", found="$m.key"))
    return made


def _literal(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
