"""Which indexes a run folds or builds, by which release of pylance, and what that will write. Pure.

Folding writes an index anew whole, so under `tiered` a few uncovered rows may wait. Lance answers from the index and
scans the fragments that it does not cover: what waits costs its readers time, in proportion to its rows, and never an
answer.

Words that one analyser wrote are not all found by another (docs/adr/0012). So a text index is folded only by a release
of the analyser that the readers of the table have, built anew where another one wrote it, and left to the engine where
neither can be done.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from omnigraph_ops.graph.stamp import Analyser, TextIndex, TextWriter
from omnigraph_ops.lance.tables import VECTOR_DETAILS, FragmentFacts, IndexFacts, TableFacts, index_type_of
from omnigraph_ops.lance.text_indexer import COMMAND
from omnigraph_ops.lance.vector_indexes import VectorFacts
from omnigraph_ops.models.optimize import IndexBuild, IndexFold, PendingIndex, RewritePolicy
from omnigraph_ops.quantities import count
from omnigraph_ops.stages.optimize.fragments import RewriteRules, kept_apart, uncovered_rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """Indexes that are left behind for a later run."""

    names: tuple[str, ...]
    rows: int
    """Rows that the worst of them does not cover."""
    limit: float
    """The share of the table's rows above which they are folded."""

    def sentence(self, of_rows: int) -> str:
        """What waits and until when. Pure."""
        names = ", ".join(self.names)
        return f"{names} behind by {self.rows:,} of {count(of_rows, 'row')}, folded above {self.limit * 100:g} %"


def index_folds(indexes: Sequence[IndexFacts], fragments: Sequence[FragmentFacts]) -> tuple[IndexFold, ...]:
    """Indexes with an uncovered fragment or more than one segment, by name. Pure.

    Coverage is judged per index name, over the union of its segments: a vector index with delta
    segments covers what they cover together.
    """
    current = frozenset(f.fragment_id for f in fragments)
    folds = (replace(_fold(index), uncovered_fragments=len(current - index.covered)) for index in indexes)
    behind = (fold for fold in folds if fold.uncovered_fragments or fold.segments > 1)
    return tuple(sorted(behind, key=lambda fold: fold.name))


def with_rebuilds(
    folds: Sequence[IndexFold], indexes: Iterable[IndexFacts], why: Mapping[str, str]
) -> tuple[IndexFold, ...]:
    """The folds, and a build of each index that is of no use as it is; `why` says of each what is wrong. Pure."""
    others = [f for f in folds if f.name not in why]
    anew = [replace(_fold(i), rebuild=True, why=f"{i.name} {why[i.name]}") for i in indexes if i.name in why]
    return tuple(sorted([*others, *anew], key=lambda fold: fold.name))


def unhidden_by(groups: Iterable[Iterable[FragmentFacts]], indexes: Iterable[IndexFacts]) -> frozenset[str]:
    """The indexes whose entries of deleted rows nothing hides once these fragments are rewritten. Pure."""
    purged = frozenset(f.fragment_id for group in groups for f in group if f.deleted_rows)
    return frozenset(i.name for i in indexes if i.covered & purged)


def with_purges(
    folds: Sequence[IndexFold], indexes: Iterable[IndexFacts], shown: Collection[str], unhidden: Collection[str]
) -> tuple[IndexFold, ...]:
    """The folds, and one of each index whose entries of deleted rows have to go. Pure.

    A fold drops them from a vector index; from others only when it takes new rows in, so those are built anew.

    Args:
        shown: those that answer wrong as they are or keep values that have to go, which is reason enough for a run.
        unhidden: those that would after the rewrite.
    """
    by_name = {f.name: f for f in folds}
    for index in indexes:
        if index.name in shown or index.name in unhidden:
            fold = by_name.get(index.name) or _fold(index)
            why = f"{index.name} has entries of rows that are gone" if index.name in shown else fold.why
            by_name[index.name] = replace(fold, purge=True, rebuild=index.details != VECTOR_DETAILS, why=why)
    return tuple(sorted(by_name.values(), key=lambda fold: fold.name))


def with_retrains(folds: Sequence[IndexFold], vectors: Iterable[VectorFacts]) -> tuple[IndexFold, ...]:
    """The folds, and a training of every vector index whose partitions do not fit its rows. Pure."""
    by_name = {f.name: f for f in folds}
    for index in vectors:
        if index.problem is not None:
            fold = by_name.get(index.name) or IndexFold(
                name=index.name, columns=(index.column,), segments=index.segments, uncovered_fragments=0
            )
            cost = "of several partitions a query with `limit 1` reads one, and may miss the nearest vector"
            why = f"{index.problem} ({cost})" if index.wanted > 1 else index.problem
            by_name[index.name] = replace(fold, retrain=True, why=why)
    return tuple(sorted(by_name.values(), key=lambda fold: fold.name))


def waiting_for_rows(facts: TableFacts, rules: RewriteRules, limit: float) -> Waiting | None:
    """The indexes behind, when all of them may stay behind for now; None when they are to be folded. Pure.

    All or none: then all cover the same fragments, and Lance merges only neighbours of which that is true.
    """
    behind = index_folds(facts.indexes, facts.fragments)
    if rules.policy is not RewritePolicy.TIERED or limit <= 0 or not behind:
        return None
    rows = max(uncovered_rows(facts.fragments, index) for index in facts.indexes)
    few = rows <= limit * sum(f.live_rows for f in facts.fragments)
    if not few or any(_unusable(i, facts.fragments) for i in facts.indexes):
        return None
    if kept_apart(facts.fragments, rules, facts.indexes):
        return None
    return Waiting(names=tuple(fold.name for fold in behind), rows=rows, limit=limit)


def _unusable(index: IndexFacts, fragments: Sequence[FragmentFacts]) -> bool:
    return index.segments > 1 or not any(f.fragment_id in index.covered for f in fragments)


_ROW_BYTES = {"BTREE": 4, "IVF_FLAT": 4, "INVERTED": 40}
"""Beside the values of its column, by type: where they are, and of a text index the words that only this row has."""
_FILE_BYTES = 4096
"""What the smallest index takes."""


def index_bytes(
    facts: TableFacts, folds: Iterable[IndexFold], builds: Iterable[IndexBuild], column_bytes: Mapping[str, int]
) -> int:
    """Bytes that these folds and builds are expected to write. Pure.

    Args:
        column_bytes: data bytes of the columns that are to be indexed for the first time.
    """
    by_name = {index.name: index for index in facts.indexes}
    folded = sum(_fold_bytes(by_name[fold.name], facts.fragments) for fold in folds)
    built = sum(
        _FILE_BYTES + column_bytes.get(build.column, 0) + facts.rows * _ROW_BYTES[build.index_type] for build in builds
    )
    return folded + built


def _fold_bytes(index: IndexFacts, fragments: Iterable[FragmentFacts]) -> int:
    """Folding writes the whole index anew; its size follows the rows that it covers."""
    rows = {f.fragment_id: f.live_rows for f in fragments}
    covered = sum(number for fragment, number in rows.items() if fragment in index.covered)
    return index.size_bytes * sum(rows.values()) // covered if covered else index.size_bytes


INVERTED = "INVERTED"
_PLAIN_RELEASES = {Analyser.LANCE_8: "8.0.1", Analyser.LANCE_10: "10.0.0", Analyser.LANCE_11: None}


@dataclass(frozen=True, slots=True, kw_only=True)
class TextState:
    """What a decision about the text indexes of one table rests on."""

    writer: TextWriter | None
    """None on plain Lance, where whoever wrote an index decides."""
    indexes: Mapping[str, TextIndex] = field(default_factory=dict)
    installed: frozenset[str] = frozenset()
    """Releases of pylance that can be used besides the own one."""
    certified_by: str | None = None
    """The sign of an engine that accepts only its own text indexes."""
    has_updated_rows: bool = False
    """Whether rows of the table were updated and kept their ids; looked for on plain Lance alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexWork:
    """The index work of one table."""

    folds: tuple[IndexFold, ...]
    builds: tuple[IndexBuild, ...]
    pending: tuple[PendingIndex, ...]


def with_texts(work: IndexWork, facts: TableFacts, state: TextState | None) -> IndexWork:
    """The work with its text indexes routed: those of another analyser added, those left to the engine taken out."""
    if state is None or facts.rows == 0:
        return work
    texts = {i.name: i for i in facts.indexes if index_type_of(i) == INVERTED}
    wanted = {f.name: f for f in work.folds if f.name in texts}
    wanted |= {name: _fold(index) for name, index in texts.items() if name not in wanted and _is_foreign(state, name)}
    folds = [f for f in work.folds if f.name not in texts]
    builds = [b for b in work.builds if b.index_type != INVERTED]
    pending = list(work.pending)
    for name, fold in wanted.items():
        routed = _routed(state, name, fold)
        pending += [PendingIndex(column=c, reason=routed) for c in fold.columns] if isinstance(routed, str) else []
        folds += [routed] if isinstance(routed, IndexFold) else []
    for build in (b for b in work.builds if b.index_type == INVERTED):
        reason = _withheld(state, state.writer.release if state.writer else None)
        pending += [PendingIndex(column=build.column, reason=reason)] if reason else []
        builds += [] if reason else [replace(build, release=state.writer.release if state.writer else None)]
    order = {b.name: n for n, b in enumerate(work.builds)}
    return IndexWork(
        folds=tuple(sorted(folds, key=lambda f: f.name)),
        builds=tuple(sorted(builds, key=lambda b: order[b.name])),
        pending=tuple(pending),
    )


def foreign_texts(facts: TableFacts, state: TextState | None) -> tuple[str, ...]:
    """Text indexes with words that the engine of the graph does not find."""
    if state is None:
        return ()
    return tuple(i.name for i in facts.indexes if index_type_of(i) == INVERTED and _is_foreign(state, i.name))


def foreign_note(facts: TableFacts, state: TextState | None) -> str | None:
    """One sentence about them for a person, None when there are none."""
    names = foreign_texts(facts, state)
    if not names or state is None:
        return None
    said = "; ".join(_why(state, name) for name in names)
    return f"{said}; some words are not found until optimize builds it anew"


def _is_foreign(state: TextState, name: str) -> bool:
    index = state.indexes.get(name)
    if state.writer is None or index is None or index.certified or state.certified_by is not None:
        return False
    return not index.analysers <= state.writer.reads


def _why(state: TextState, name: str) -> str:
    assert state.writer is not None
    wrong = sorted(a.value for a in state.indexes[name].analysers - state.writer.reads)
    return f"{name} has words of {' and '.join(wrong)}"


def _fold(index: IndexFacts) -> IndexFold:
    return IndexFold(name=index.name, columns=index.columns, segments=index.segments, uncovered_fragments=0)


def _routed(state: TextState, name: str, fold: IndexFold) -> IndexFold | str:
    """The fold with its release, or why it is left to the engine."""
    index = state.indexes.get(name)
    if index is None:
        return f"{name} is not recorded in the manifest; it is left as it is"
    if state.writer is not None:
        reason = _withheld(state, state.writer.release, certified=index.certified)
        foreign = _is_foreign(state, name)
        why = _why(state, name) if foreign else fold.why
        if reason:
            return f"{why}; {reason}" if why else reason
        return replace(
            fold, release=state.writer.release, rebuild=fold.rebuild or foreign or not state.writer.folds, why=why
        )
    if index.certified:
        return _CERTIFIED
    if len(index.analysers) != 1:
        return f"{name} was written by several releases of Lance that take words apart differently; build it anew"
    (analyser,) = index.analysers
    release = _PLAIN_RELEASES[analyser]
    # A fold by that Lance keeps what updated rows said before.
    anew = analyser is Analyser.LANCE_8 and state.has_updated_rows
    return _withheld(state, release) or replace(fold, release=release, rebuild=fold.rebuild or anew)


_CERTIFIED = "only the engine that certified this text index may write it; run omnigraph rebuild-full-text-indexes"


def _withheld(state: TextState, release: str | None, *, certified: bool = False) -> str | None:
    """Why this tool writes no such index here, None when it may."""
    if certified:
        return _CERTIFIED
    if state.certified_by is not None:
        return (
            f"{state.certified_by}, which means an engine (0.10 or newer) that accepts only text indexes of its own; "
            "run omnigraph rebuild-full-text-indexes"
        )
    if release is None or release in state.installed:
        return None
    cure = f"; {state.writer.cure}" if state.writer is not None and state.writer.cure else ""
    return (
        f"its words have to be written by pylance {release}, which is not installed here; left to the engine, which "
        f"scans rows that the index does not cover{cure}; install it with `{COMMAND}`"
    )
