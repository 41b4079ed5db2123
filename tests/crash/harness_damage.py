"""Ways to damage a graph's files. Each takes the graph's folder and changes it in place."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lance

GRAPH, TABLE, HARMLESS = "graph", "table", "harmless"
READ_ONLY = ("check", "plan", "cleanup")
VERBS = (*READ_ONLY, "optimize")
Damage = Callable[[Path], object]
DEEP = "[" * 200_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One damaged graph and what the verbs must make of it."""

    name: str
    damage: Damage
    names: str
    """What every failing verb must mention: the file, the table or the stamp."""
    scope: str = GRAPH
    """`graph`: nothing is written; `table`: others may be done; `harmless`: the verbs may succeed."""
    must_fail: tuple[str, ...] = VERBS
    stamps: tuple[int, ...] = (3, 6)


def newest(folder: Path) -> Path:
    """The newest manifest file of a dataset: V2 names count down. Reads."""
    return min((folder / "_versions").glob("*.manifest"))


def person(root: Path) -> Path:
    """The folder of `node:Person`. Reads."""
    rows = lance.dataset(str(root / "__manifest")).to_table(filter="object_type = 'table'").to_pylist()
    return root / str(next(r["location"] for r in rows if r["table_key"] == "node:Person"))


def put(path: str, content: bytes | str | None) -> Damage:
    """Replace a file's content; None removes the file."""

    def damage(root: Path) -> None:
        target = root / path
        if content is None:
            target.unlink()
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content.encode() if isinstance(content, str) else content)

    return damage


def folder_at(path: str) -> Damage:
    """A folder where a file belongs."""

    def damage(root: Path) -> None:
        (root / path).unlink(missing_ok=True)
        (root / path).mkdir(parents=True)

    return damage


def file_at(path: str) -> Damage:
    """A file where a folder belongs."""

    def damage(root: Path) -> None:
        shutil.rmtree(root / path, ignore_errors=True)
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text("not a folder")

    return damage


def on(pick: Callable[[Path], Path], act: Callable[[Path], object]) -> Damage:
    """Apply `act` to the path that `pick` finds."""
    return lambda root: act(pick(root))


def halve(path: Path) -> None:
    """Truncate a file in its middle. Writes."""
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def scramble(path: Path) -> None:
    """Keep the size, lose the content. Writes."""
    path.write_bytes(hashlib.sha256(path.name.encode()).digest() * (path.stat().st_size // 32 + 1))


def flip_footer(path: Path) -> None:
    """A footer that points far behind the end of the file. Writes."""
    data = path.read_bytes()
    path.write_bytes(data[:-16] + b"\xff" * 7 + b"\x7f" + data[-8:])


def each(folder: str, act: Callable[[Path], object]) -> Callable[[Path], None]:
    """Apply `act` to every file below a sub-folder."""

    def damage(base: Path) -> None:
        for path in sorted((base / folder).rglob("*")):
            if path.is_file():
                act(path)

    return damage


def remove(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink()


def link_away(path: Path) -> None:
    """Move a folder out of the graph and leave a link to it. Writes."""
    outside = path.parent.parent.parent / f"outside-{path.name}"
    shutil.move(path, outside)
    path.symlink_to(outside)


def lose_newest(count: int) -> Callable[[Path], None]:
    """Remove the newest versions of a dataset, as a bad restore from a backup does. Writes."""

    def damage(folder: Path) -> None:
        for path in sorted((folder / "_versions").glob("*.manifest"))[:count]:
            path.unlink()
        (folder / "_versions" / "latest_version_hint.json").unlink(missing_ok=True)

    return damage


def stamp(value: str) -> Damage:
    """Set the stamp of the graph manifest. Writes."""
    return lambda root: lance.dataset(str(root / "__manifest")).update_schema_metadata(
        {"omnigraph:internal_schema_version": value}
    )


def consistent_ir(change: Callable[[dict[str, Any]], object]) -> Damage:
    """Change the schema IR and its recorded hash alike: well signed, but wrong. Writes."""

    def damage(root: Path) -> None:
        ir = json.loads((root / "_schema.ir.json").read_text())
        change(ir)
        text = json.dumps(ir, separators=(",", ":"), ensure_ascii=False)
        (root / "_schema.ir.json").write_text(text)
        state = json.loads((root / "__schema_state.json").read_text())
        state["schema_ir_hash"] = "sha256:" + hashlib.sha256(text.encode()).hexdigest()
        (root / "__schema_state.json").write_text(json.dumps(state))

    return damage


def edit_json(path: str, **fields: object) -> Damage:
    """Set top-level fields of a JSON file. Writes."""

    def damage(root: Path) -> None:
        data = json.loads((root / path).read_text())
        data.update(fields)
        (root / path).write_text(json.dumps(data))

    return damage


def sidecar(raw: bytes | str) -> Damage:
    """A recovery sidecar with that content."""
    return put("__recovery/01ARZ3NDEKTSV4RRFFQ69G5FAV.json", raw)


def loop(path: str) -> Damage:
    """A link that leads to itself."""

    def damage(root: Path) -> None:
        target = root / path
        if target.exists():
            remove(target)
        target.parent.mkdir(parents=True, exist_ok=True)
        os.symlink(target.name, target)

    return damage
