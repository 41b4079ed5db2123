"""The graphs file: every graph of a deployment in one YAML file, one entry each (docs/reference/graphs-file.md).

YAML with the line of every key, and without the keys that stand twice. A few lines of anchors and aliases can describe
more than any memory holds, so everything is bounded: the text, what it consists of, how deep that is, and what becomes
of it when every alias is what it names.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError
from pydantic.json_schema import models_json_schema

from omnigraph_ops.config.graph_entries import NAME, Defaults, GraphEntry
from omnigraph_ops.errors import InvalidInput, first_line

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
    except YamlProblem:
        raise
    except Exception as error:
        # Of a value that does not fit its tag, as in `!!bool x`, PyYAML raises whatever it comes to.
        raise YamlProblem(1, f"not YAML: {first_line(error)}") from None
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


_ALTERNATIVES = {"retention"}
"""Blocks that a graph replaces as a whole: merging two policies would mix them."""
_TOP = ("version", "defaults", "graphs")
_JSON_KEYS = (str, int, float, bool, type(None))
VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """What is wrong, and where."""

    file: str
    line: int
    where: str
    """The key, as in `graphs.people.retention.keep`; empty for the file itself."""
    message: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {f'{self.where}: ' if self.where else ''}{self.message}"


class GraphsFileError(InvalidInput):
    """A graphs file that does not hold together; the message has a line per problem."""

    def __init__(self, message: str, problems: tuple[Problem, ...] = ()) -> None:
        super().__init__(message)
        self.problems = problems

    @classmethod
    def of(cls, problems: tuple[Problem, ...]) -> GraphsFileError:
        """The error about these problems. Pure."""
        return cls("\n".join(str(problem) for problem in problems), problems)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The graphs that are described without a fault, and everything that is not."""

    file: str
    graphs: tuple[GraphEntry, ...]
    problems: tuple[Problem, ...] = ()


def load_graphs(path: str | Path) -> tuple[GraphEntry, ...]:
    """All graphs of the file, in its order; `GraphsFileError` when anything is wrong with it. Reads."""
    reading = read_graphs(path)
    if reading.problems:
        raise GraphsFileError.of(reading.problems)
    return reading.graphs


def read_graphs(path: str | Path) -> Reading:
    """The faultless graphs of the file and the problems of the others. Reads."""
    name = str(path)
    try:
        with Path(path).open(encoding="utf-8") as file:
            text = file.read(LARGEST + 1)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        return _failed(name, 1, f"the graphs file cannot be read: {reason}")
    return _reading_of(name, text)


@lru_cache(maxsize=4)
def _reading_of(name: str, text: str) -> Reading:
    """The same for a text: a page asks about each of its graphs, and a text never gets stale. Pure."""
    try:
        document = parse(text)
    except YamlProblem as error:
        return _failed(name, error.line, error.message)
    return _Reader(name, document).read()


def _failed(name: str, line: int, message: str) -> Reading:
    return Reading(file=name, graphs=(), problems=(Problem(file=name, line=line, where="", message=message),))


class _Reader:
    """One pass over a parsed file."""

    def __init__(self, name: str, document: Document) -> None:
        self._name = name
        self._document = document
        self._problems: list[Problem] = []

    def read(self) -> Reading:
        for key, message in self._document.duplicates:
            self._report(key, message)
        content = self._document.content
        if not isinstance(content, Mapping):
            self._report((), "a graphs file is a mapping with the keys version, defaults and graphs")
            return self._reading([])
        self._check_top(content)
        defaults = content.get("defaults") or {}
        if not self._validated(Defaults, defaults, ("defaults",)):
            return self._reading([])
        graphs = content.get("graphs") or {}
        if not isinstance(graphs, Mapping):
            self._report(("graphs",), "it is a mapping from the name of a graph to what it says about it")
            return self._reading([])
        return self._reading(list(self._entries(graphs, defaults)))

    def _check_top(self, content: Mapping[Any, Any]) -> None:
        for key in content:
            if key not in _TOP:
                self._report((key,), f"unknown key; known ones are {', '.join(_TOP)}")
        if content.get("version") != VERSION or isinstance(content.get("version"), bool):
            self._report(("version",), f"must be {VERSION}")
        if not content.get("graphs"):
            self._report(("graphs",), "no graph is listed")

    def _entries(self, graphs: Mapping[Any, Any], defaults: Mapping[str, Any]) -> Iterator[GraphEntry]:
        duplicated = {key[1] for key, _ in self._document.duplicates if len(key) > 1 and key[0] == "graphs"}
        for name, said in graphs.items():
            where = ("graphs", name)
            if not isinstance(said, Mapping):
                self._report(where, "it is a mapping with at least the key target")
            elif "name" in said:
                self._report((*where, "name"), "unknown key; the name of a graph is its key below graphs")
            else:
                entry = self._validated(GraphEntry, {**_merged(defaults, said), "name": name}, where)
                if entry is not None and name not in duplicated:
                    yield entry

    def _validated(self, cls: Any, value: Any, where: tuple[Any, ...]) -> Any:
        """The value as `cls`; None after reporting what is wrong with it."""
        try:
            # As JSON: there a strict model takes lists and tokens for tuples and enums.
            return cls.model_validate_json(json.dumps(_with_words(value), default=str), strict=True)
        except ValidationError as error:
            for found in error.errors(include_url=False):
                self._report((*where, *_key(found["loc"])), _sentence(found))
            return None

    def _report(self, key: tuple[Any, ...], message: str) -> None:
        line = self._document.line(key) or 1
        where = ".".join(str(part) for part in key)
        problem = Problem(file=self._name, line=line, where=where, message=message)
        if problem not in self._problems:
            self._problems.append(problem)

    def _reading(self, entries: list[GraphEntry]) -> Reading:
        shared = {root for root, count in Counter(e.root for e in entries).items() if count > 1}
        for entry in entries:
            if entry.root in shared:
                others = ", ".join(e.name for e in entries if e.root == entry.root and e is not entry)
                self._report(("graphs", entry.name, "target"), f"the same graph as {others}")
        graphs = tuple(e for e in entries if e.root not in shared)
        problems = tuple(sorted(self._problems, key=lambda p: p.line))
        return Reading(file=self._name, graphs=graphs, problems=problems)


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """What a graph says over the defaults, blocks key by key. Pure."""
    merged = dict(below)
    for key, value in above.items():
        both = isinstance(value, Mapping) and isinstance(below.get(key), Mapping)
        merged[key] = _merged(below[key], value) if both and key not in _ALTERNATIVES else value
    return merged


def _with_words(value: Any) -> Any:
    """The value with words for the keys that JSON does not have: YAML makes a date of `2026-01-01`. Pure."""
    if isinstance(value, list):
        return [_with_words(item) for item in value]
    if not isinstance(value, Mapping):
        return value
    return {key if isinstance(key, _JSON_KEYS) else str(key): _with_words(of) for key, of in value.items()}


def _key(location: tuple[Any, ...]) -> tuple[Any, ...]:
    """The key that pydantic means: after `target` it names a kind of target, which no file has. Pure."""
    return location[:1] + location[2:] if location[:1] == ("target",) else location


def _sentence(found: Mapping[str, Any]) -> str:
    if found["type"] == "extra_forbidden":
        return "unknown key"
    if found["type"] == "string_pattern_mismatch" and found["ctx"]["pattern"] == f"^{NAME}$":
        return "a name begins with a lower-case letter and has at most 64 such letters, digits, `_` and `-`"
    if found["type"] == "string_type" and isinstance(found["input"], int | float):
        return "input should be a valid string, so put it in quotes"  # YAML makes numbers of 5, and truths of `yes`
    message = str(found["msg"]).removeprefix("Value error, ")
    # The name of a variable stays as it is.
    return message if message[:2].isupper() else message[:1].lower() + message[1:]


_REF = "#/$defs/"


def json_schema() -> dict[str, Any]:
    """What an editor checks while somebody types; the reader checks more. Pure."""
    _, schema = models_json_schema([(Defaults, "validation"), (GraphEntry, "validation")])
    blocks = schema["$defs"]
    entry = blocks["GraphEntry"]
    # The name is the key.
    del entry["properties"]["name"]
    entry["required"] = ["target"]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Graphs file of omnigraph-ops",
        "type": "object",
        "additionalProperties": False,
        "required": ["version", "graphs"],
        "properties": {
            "version": {"const": VERSION},
            "defaults": {"$ref": _REF + "Defaults"},
            "graphs": {
                "type": "object",
                "minProperties": 1,
                "additionalProperties": False,
                "patternProperties": {f"^{NAME}$": {"$ref": _REF + "GraphEntry"}},
            },
        },
        "$defs": blocks,
    }
