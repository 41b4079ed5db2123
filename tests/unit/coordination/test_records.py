"""One kind of small file: what is written, and what becomes of one that cannot be read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from omnigraph_ops import serde
from omnigraph_ops.coordination.state import Records, refuse
from omnigraph_ops.errors import CorruptGraph, InvalidInput
from omnigraph_ops.outcomes.results import redactor
from omnigraph_ops.storage.store import Storage

HERE = "kept/a.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    text: str
    number: int = 0


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage(str(tmp_path))


NOTES = Records(Note)


def test_what_is_written_is_the_json_of_the_value_and_is_read_again(storage: Storage) -> None:
    NOTES.write(storage, HERE, Note(text="ü", number=2))
    assert storage.read(HERE) == serde.dumps(Note(text="ü", number=2)).encode()
    assert NOTES.read(storage, HERE) == Note(text="ü", number=2)
    assert NOTES.read(storage, "kept/b.json") is None


def test_only_the_first_creates_a_file(storage: Storage) -> None:
    assert [NOTES.create(storage, HERE, Note(text=text)) for text in ("first", "second")] == [True, False]
    assert NOTES.read(storage, HERE) == Note(text="first")


def test_secrets_are_taken_out_of_the_text(storage: Storage) -> None:
    NOTES.write(storage, HERE, Note(text="hunter2"), clean=lambda text: text.replace("hunter2", "***"))
    assert NOTES.read(storage, HERE) == Note(text="***")


def test_what_is_cleaned_stays_json_whatever_is_around_a_secret(storage: Storage) -> None:
    note = Note(text='the store said token="t0ken", and hunter"2')
    NOTES.write(storage, HERE, note, clean=redactor(['hunter"2']))
    assert NOTES.read(storage, HERE) == Note(text='the store said token="***", and ***')


def test_a_folder_is_read_by_name_without_what_is_not_of_the_kind(storage: Storage) -> None:
    for name, text in (("b.json", '{"text": "b"}'), ("a.json", '{"text": "a"}'), ("c.json", "{"), ("d.tmp", "{}")):
        storage.write(f"kept/{name}", text.encode())
    assert [(path, note.text) for path, note in NOTES.all(storage, "kept")] == [
        ("kept/a.json", "a"),
        ("kept/b.json", "b"),
    ]
    assert NOTES.paths(storage, "kept") == ["kept/a.json", "kept/b.json", "kept/c.json"]
    assert NOTES.paths(storage, "nowhere") == []


@pytest.mark.parametrize("damaged", ["", "{", "[]", "{}", '{"text": 3}', '{"text": "a", "schema_version": 2}', "\xff"])
def test_a_file_that_cannot_be_read_is_what_its_kind_says(storage: Storage, damaged: str) -> None:
    def told(path: str, error: InvalidInput) -> None:
        said.append(f"{path}: {error}")

    def corrupt(path: str, error: InvalidInput) -> None:
        raise CorruptGraph(f"{path} cannot be read: {error}")

    said: list[str] = []
    storage.write(HERE, damaged.encode("latin-1"))
    assert NOTES.read(storage, HERE) is None
    assert Records(Note, unreadable=told).read(storage, HERE) is None
    assert len(said) == 1
    with pytest.raises(InvalidInput):
        Records(Note, unreadable=refuse).read(storage, HERE)
    with pytest.raises(CorruptGraph, match=r"kept/a\.json cannot be read"):
        Records(Note, unreadable=corrupt).read(storage, HERE)


def test_what_a_later_release_wrote_is_not_guessed_at(storage: Storage) -> None:
    storage.write(HERE, b'{"schema_version": 2, "text": "a", "number": 0}')
    with pytest.raises(InvalidInput, match="a later release wrote it, with version 2 of its schema"):
        Records(Note, unreadable=refuse).read(storage, HERE)
