"""What a graph is, as far as the record of a run speaks of it, and where the two differ."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from omnigraph_ops.graph import Graph
from omnigraph_ops.lance.versions import existing_versions
from omnigraph_ops.models.history import RunRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What a graph is, as far as a record speaks of it."""

    pins: dict[str, int]
    heads: dict[str, int]
    versions: dict[str, frozenset[int]]
    files: dict[str, int]

    @staticmethod
    def of(graph: Graph) -> Seen:
        """Everything but the state of this tool. Reads."""
        entries = graph.maintained(graph.state())
        heads = {e.table_key: graph.open_head(e) for e in entries}
        root = Path(graph.uri)
        found = (p for p in root.rglob("*") if p.is_file() and "__maintenance" not in p.parts)
        return Seen(
            pins={e.table_key: e.version for e in entries},
            heads={key: int(head.version) for key, head in heads.items()},
            versions={key: frozenset(v.version for v in existing_versions(head)) for key, head in heads.items()},
            files={str(p.relative_to(root)): p.stat().st_size for p in found},
        )


def _cleanup(run: RunRecord, before: Seen, after: Seen) -> list[str]:
    gone = {key: len(versions - after.versions[key]) for key, versions in before.versions.items()}
    said = {t.table_key: t.work.versions_removed for t in run.tables}
    size = sum(bytes_ for path, bytes_ in before.files.items() if path not in after.files)
    return [
        differ("versions", run.work.versions_removed, sum(gone.values())),
        differ("versions by table", {k: n for k, n in said.items() if n}, {k: n for k, n in gone.items() if n}),
        differ("bytes", run.work.bytes_reclaimed, size),
    ]


def _optimize(run: RunRecord, before: Seen, after: Seen) -> list[str]:
    moved = {key for key, head in after.heads.items() if head != before.heads[key]}
    rewritten = {t.table_key for t in run.tables if t.work.bytes_rewritten}
    said = {t.table_key for t in run.tables if "optimize" in t.stages}
    return [differ("committed", said, moved), differ("rewritten", rewritten, moved)]


def _orphans(run: RunRecord, before: Seen, after: Seen) -> list[str]:
    gone = [size for path, size in before.files.items() if path not in after.files]
    return [
        differ("files", run.work.files_removed, len(gone)),
        differ("bytes", run.work.bytes_reclaimed, sum(gone)),
    ]


def _published(stage: str) -> Callable[[RunRecord, Seen, Seen], list[str]]:
    def compared(run: RunRecord, before: Seen, after: Seen) -> list[str]:
        moved = {key for key, pin in after.pins.items() if pin != before.pins[key]}
        return [differ("published", {t.table_key for t in run.tables if stage in t.stages}, moved)]

    return compared


COMPARED = {
    "cleanup": _cleanup,
    "optimize": _optimize,
    "orphans": _orphans,
    "repair": _published("repair"),
    "recover": _published("recover"),
}
"""By verb: what the record says otherwise than the graph shows, in words; empty where they agree."""


def differ(what: str, said: object, found: object) -> str:
    """The sentence about a difference; empty where there is none."""
    return "" if said == found else f"{what}: the record says {said}, the graph shows {found}"
