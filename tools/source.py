"""What the reference is made of: classes with their fields and the text under each, read from source files.

Reading the syntax needs no import of Lance or Airflow, and finds a class wherever its module moves to.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One field of a class, or one value of an enum."""

    name: str
    type: str
    """The annotation as it is written; empty for a value of an enum."""
    doc: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One dataclass or enum."""

    name: str
    doc: str
    is_enum: bool
    fields: tuple[Field, ...]


@cache
def classes(package: Path) -> dict[str, Kind]:
    """Return every dataclass and string enum of a package by its name. Reads."""
    found: dict[str, Kind] = {}
    for path in sorted(package.rglob("*.py")):
        tree = ast.parse(path.read_text("utf-8"))
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and (_is_enum(node) or _is_dataclass(node)):
                found[node.name] = _kind(node)
    return found


def dictionary_keys(path: Path, function: str) -> list[str]:
    """Return the keys of the first dictionary in a function; a placeholder of an f-string is `{}`. Reads."""
    tree = ast.parse(path.read_text("utf-8"))
    (body,) = (n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == function)
    first = next(n for n in ast.walk(body) if isinstance(n, ast.Dict))
    return [_text(key) for key in first.keys]


def _text(key: ast.expr | None) -> str:
    if isinstance(key, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in key.values)
    if isinstance(key, ast.Constant):
        return str(key.value)
    raise ValueError("only text is expected as a key")


def _is_enum(node: ast.ClassDef) -> bool:
    return any(isinstance(base, ast.Name) and base.id.endswith("Enum") for base in node.bases)


def _is_dataclass(node: ast.ClassDef) -> bool:
    return any("dataclass" in ast.unparse(decorator) for decorator in node.decorator_list)


def _kind(node: ast.ClassDef) -> Kind:
    is_enum = _is_enum(node)
    read = _values if is_enum else _annotated
    return Kind(name=node.name, doc=ast.get_docstring(node) or "", is_enum=is_enum, fields=tuple(read(node)))


def _annotated(node: ast.ClassDef) -> Iterator[Field]:
    for statement, doc in _documented(node):
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            yield Field(name=statement.target.id, type=ast.unparse(statement.annotation), doc=doc)


def _values(node: ast.ClassDef) -> Iterator[Field]:
    for statement, doc in _documented(node):
        if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Constant):
            yield Field(name=str(statement.value.value), type="", doc=doc)


def _documented(node: ast.ClassDef) -> Iterator[tuple[ast.stmt, str]]:
    """Yield each statement with the text that stands under it."""
    for statement, below in zip(node.body, [*node.body[1:], None], strict=True):
        under = isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant)
        text = below.value.value if under else ""  # type: ignore[union-attr]
        yield statement, text if isinstance(text, str) else ""
