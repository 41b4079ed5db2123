"""YAML with the line of every key, and without the keys that stand twice."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml

Key = tuple[Any, ...]
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_DEEPEST = 50


class YamlProblem(Exception):
    """Text that is not YAML."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line, self.message = line, message


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """The content, and where each part of it stands."""

    content: Any
    lines: dict[Key, int]
    duplicates: tuple[tuple[Key, str], ...]

    def line(self, key: Key) -> int | None:
        """The line of a key, or of the nearest part around it below the top; None when there is none. Pure."""
        for end in range(len(key), 0, -1):
            if (line := self.lines.get(key[:end])) is not None and (end > 1 or len(key) == 1):
                return line
        return None


def parse(text: str) -> Document:
    """Parse one YAML document of plain values; `YamlProblem` names the line. Pure."""
    loader = _LOADER(text)
    try:
        node = loader.get_single_node()
        lines: dict[Key, int] = {}
        duplicates: list[tuple[Key, str]] = []
        for key, line in _keys(node, ()):
            if key in lines and not any(key[: len(other)] == other for other, _ in duplicates):
                duplicates.append((key, f"the key stands twice, first on line {lines[key]}"))
            lines[key] = line
        content = loader.construct_document(node) if node is not None else None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise YamlProblem(mark.line + 1 if mark else 1, f"not YAML: {error.problem or error.context}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise YamlProblem(1, f"not YAML: {str(error).splitlines()[0]}") from None
    finally:
        loader.dispose()
    return Document(content=content, lines=lines, duplicates=tuple(duplicates))


def _keys(node: Any, above: Key) -> Iterator[tuple[Key, int]]:
    """Every key and list item with its line, parents first."""
    if len(above) > _DEEPEST:
        raise YamlProblem(node.start_mark.line + 1, "nested too deeply")
    if isinstance(node, yaml.MappingNode):
        for key_node, value_node in node.value:
            key = (*above, _plain(key_node))
            yield key, key_node.start_mark.line + 1
            yield from _keys(value_node, key)
    elif isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            yield (*above, index), item.start_mark.line + 1
            yield from _keys(item, (*above, index))


def _plain(node: Any) -> str:
    if not isinstance(node, yaml.ScalarNode):
        raise YamlProblem(node.start_mark.line + 1, "a key must be a word")
    return str(node.value)
