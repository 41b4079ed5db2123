"""YAML with the line of every key, and without the keys that stand twice.

A few lines of anchors and aliases can describe more than any memory holds, so everything is bounded: the text, what it
consists of, how deep that is, and what becomes of it when every alias is what it names.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml

Key = tuple[Any, ...]
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
LARGEST = 4 * 1024 * 1024
"""Characters of a graphs file: with every key of every graph written out, some thousand graphs."""
_DEEPEST = 50
_BLOCK = 3
"""How deep `graphs.people.retention` is."""
_MOST_PARTS = 200_000
"""Keys, values and list items, of the text and of what it expands to; each takes about a kilobyte of memory."""
_MOST_CHARACTERS = 4 * LARGEST
"""Of all values together, with aliases expanded."""


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
    if len(text) > LARGEST:
        raise YamlProblem(1, f"the file has more than {LARGEST:,} characters; split it")
    loader = _LOADER(text)
    try:
        _check_size(text)
        node = loader.get_single_node()
        lines: dict[Key, int] = {}
        duplicates: list[tuple[Key, str]] = []
        for key, line in _counted(_keys(node, ())):
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


def _check_size(text: str) -> None:
    """Refuse what is too large or too deep before anything is built of it; the C parser follows any depth. Pure."""
    depth = 0
    events: Iterator[Any] = yaml.parse(text, Loader=_LOADER)
    for number, event in enumerate(events):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        line = event.start_mark.line + 1
        if depth > _DEEPEST:
            raise YamlProblem(line, "nested too deeply")
        if number > _MOST_PARTS:
            raise YamlProblem(line, f"the file has more than {_MOST_PARTS:,} parts; split it")


def _counted(keys: Iterator[tuple[Key, int, int]]) -> Iterator[tuple[Key, int]]:
    """Keys with their lines, as long as they are no more than a file without aliases could have. Pure."""
    characters = around = 0
    for number, (key, line, size) in enumerate(keys):
        # What an alias names stands elsewhere: the block that uses it is the one to look at.
        around = line if len(key) <= _BLOCK else around
        characters += size
        if number > _MOST_PARTS or characters > _MOST_CHARACTERS:
            raise YamlProblem(around, "with its aliases expanded this becomes too large; use fewer aliases of aliases")
        yield key, line


def _keys(node: Any, above: Key) -> Iterator[tuple[Key, int, int]]:
    """Every key and list item with its line and the characters of its value, parents first."""
    if len(above) > _DEEPEST:
        raise YamlProblem(node.start_mark.line + 1, "nested too deeply")
    if isinstance(node, yaml.MappingNode):
        for key_node, value_node in node.value:
            key = (*above, _plain(key_node))
            yield key, key_node.start_mark.line + 1, _characters(value_node)
            yield from _keys(value_node, key)
    elif isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            yield (*above, index), item.start_mark.line + 1, _characters(item)
            yield from _keys(item, (*above, index))


def _characters(node: Any) -> int:
    return len(node.value) if isinstance(node, yaml.ScalarNode) else 0


def _plain(node: Any) -> str:
    if not isinstance(node, yaml.ScalarNode):
        raise YamlProblem(node.start_mark.line + 1, "a key must be a word")
    return str(node.value)
