"""The small files of this tool: one JSON value each, put whole, with one answer to a file that cannot be read.

A kind of file is declared once, beside its type. Where its files are is in `coordination.state`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from omnigraph_ops import serde
from omnigraph_ops.errors import InvalidInput

if TYPE_CHECKING:
    # Whoever declares a kind of file loads no store.
    from omnigraph_ops.storage.store import Storage

T = TypeVar("T")
Unreadable = Callable[[str, InvalidInput], None]
"""Called with the path of a file that cannot be read, and why: it raises, or the file counts as not there."""
_SUFFIX = ".json"


def as_missing(_path: str, _error: InvalidInput) -> None:
    """Let a file that cannot be read count as one that is not there. Pure."""


def refuse(_path: str, error: InvalidInput) -> None:
    """Let whoever reads a file that cannot be read hear why. Pure."""
    raise error


@dataclass(frozen=True, slots=True, kw_only=True)
class _Version:
    """The one field of any file that tells how to read the others."""

    schema_version: int = 1


class Records(Generic[T]):
    """One kind of file; `cls` is a frozen dataclass, the paths are below the graph."""

    def __init__(self, cls: type[T], *, unreadable: Unreadable = as_missing, version: int = 1) -> None:
        """Declare a kind of file.

        Args:
            unreadable: what happens where a file is damaged, or from a release that writes a later version.
            version: the newest that this release knows. The field is in no file of version 1.
        """
        self._cls, self._unreadable, self._version = cls, unreadable, version

    def read(self, storage: Storage, path: str) -> T | None:
        """The value in a file, None where there is none. Reads.

        Raises:
            OpsError: it cannot be read, and that is no matter of course for this kind.
        """
        try:
            data = storage.read(path)
        except FileNotFoundError:
            return None
        try:
            written = _version_of(data)
            if written > self._version:
                raise InvalidInput(f"a later release wrote it, with version {written} of its schema")
            return serde.from_json(self._cls, data)
        except InvalidInput as error:
            self._unreadable(path, error)
            return None

    def write(self, storage: Storage, path: str, value: T, *, clean: Callable[[str], str] = str) -> None:
        """Put a file whole, in place of the one that is there; `clean` takes secrets out of its text. Writes."""
        storage.write(path, clean(self._text(value)).encode())

    def create(self, storage: Storage, path: str, value: T) -> bool:
        """Put a file where there is none; whether it was put. Writes."""
        return storage.create(path, self._text(value).encode())

    def paths(self, storage: Storage, folder: str) -> list[str]:
        """Where the files of a folder are, by name. Reads."""
        return [f"{folder}/{name}" for name in storage.list(folder) if name.endswith(_SUFFIX)]

    def all(self, storage: Storage, folder: str) -> Iterator[tuple[str, T]]:
        """Every value of a folder with the path of its file, by name, each read when its turn comes. Reads."""
        for path in self.paths(storage, folder):
            value = self.read(storage, path)
            if value is not None:
                yield path, value

    def _text(self, value: T) -> str:
        if self._version == 1:
            return serde.dumps(value)
        return json.dumps({"schema_version": self._version, **serde.to_json(value)}, indent=2, ensure_ascii=False)


def _version_of(data: bytes) -> int:
    """By which version of its schema a file was written; what is damaged is told by reading the rest. Pure."""
    try:
        return serde.from_json(_Version, data).schema_version
    except InvalidInput:
        return 1
