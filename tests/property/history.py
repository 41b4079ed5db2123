"""The language of histories: what may happen to a graph, as values that hypothesis generates and shrinks.

A step that makes no sense where it stands (a branch that is there already, a drifted table) does nothing, so
that any list of steps is a history and shrinking is free to drop steps.
"""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st

PERSON, KNOWS = "node:Person", "edge:Knows"
TABLES = (PERSON, KNOWS)
NAMES = ("a", "a/b", "review/a/b", "z")
"""Branch names: nested in each other, nested in nothing, plain."""


class Step:
    """One thing that happens."""

    __slots__ = ()


@dataclass(frozen=True)
class Load(Step):
    """Rows are appended to a table of main and published."""

    table: str
    rows: int = 2


@dataclass(frozen=True)
class Delete(Step):
    """The first rows of a table of main are deleted and that is published; of zero rows, too."""

    table: str
    rows: int = 1


@dataclass(frozen=True)
class Update(Step):
    """The first row of a table of main is replaced by id and that is published."""

    table: str


@dataclass(frozen=True)
class Compact(Step):
    """Our own optimize: of one table, or of everything, internal tables included."""

    table: str | None


@dataclass(frozen=True)
class LazyBranch(Step):
    """A graph branch appears, made from another at one of its last publishes; no table is forked."""

    name: str
    source: str | None = None
    back: int = 0


@dataclass(frozen=True)
class WriteBranch(Step):
    """A table is written on a branch, made if need be; the first time forks it."""

    name: str
    table: str


@dataclass(frozen=True)
class DeleteBranch(Step):
    """A branch goes; with `orphans` its table forks stay behind, as after a crash."""

    name: str
    orphans: bool = False


@dataclass(frozen=True)
class StrayFork(Step):
    """A table is forked for a branch and nothing of it is published: a crash right after the fork."""

    name: str
    table: str


@dataclass(frozen=True)
class Tag(Step):
    """Somebody tags a version, `back` from the newest, of a table on main or on its fork."""

    table: str
    back: int
    on: str | None = None


@dataclass(frozen=True)
class Untag(Step):
    """The oldest tag goes."""


@dataclass(frozen=True)
class Hold(Step):
    """A hold on a version, `back` from the newest, of a table on main or on its fork."""

    table: str
    back: int
    on: str | None = None
    running: bool = False


@dataclass(frozen=True)
class Release(Step):
    """The oldest hold ends."""


@dataclass(frozen=True)
class Drift(Step):
    """The Lance HEAD of a table of main moves without a publish: by `compaction`, `delete` or `empty_delete`."""

    table: str
    kind: str


@dataclass(frozen=True)
class Repair(Step):
    """Our own repair of every table."""

    force: bool


@dataclass(frozen=True)
class Respell(Step):
    """From here on the graph is opened through its own path (`home`), a link to it, or a copy of it."""

    how: str


@dataclass(frozen=True)
class KilledWrite(Step):
    """A compaction of a table wrote its files and died before it committed; `aged` eight days ago."""

    table: str
    aged: bool


@dataclass(frozen=True)
class Age(Step):
    """Eight days pass for every file on disk."""


@dataclass(frozen=True)
class Cleanup(Step):
    """A plan is made, approved and applied; `limit` is a bounded snapshot expiry instead of a `keep`."""

    keep: int | None = 1
    older_than: int | None = None
    between_pins: bool = False
    limit: int | None = None


@dataclass(frozen=True)
class Orphans(Step):
    """Unreferenced files are listed, approved and deleted."""

    older_than_days: int = 7


History = tuple[Step, ...]

_tables = st.sampled_from(TABLES)
_names = st.sampled_from(NAMES)
_sources = st.none() | _names
_back = st.integers(0, 5)

_WRITES = (
    st.builds(Load, _tables, st.integers(1, 3)),
    st.builds(Delete, _tables, st.integers(0, 2)),
    st.builds(Update, _tables),
    st.builds(Compact, st.none() | _tables),
)
_BRANCHES = (
    st.builds(LazyBranch, _names, _sources, st.integers(0, 3)),
    st.builds(WriteBranch, _names, _tables),
    st.builds(DeleteBranch, _names, st.booleans()),
    st.builds(StrayFork, _names, _tables),
)
_KEEPS = (
    st.builds(Tag, _tables, _back, _sources),
    st.builds(Tag, _tables, _back, _names),
    st.builds(Hold, _tables, _back, _sources, st.booleans()),
    st.builds(Hold, _tables, _back, _names, st.booleans()),
    st.just(Untag()),
    st.just(Release()),
)
_ACCIDENTS = (
    st.builds(Drift, _tables, st.sampled_from(("compaction", "delete", "empty_delete"))),
    st.builds(Repair, st.booleans()),
    st.builds(Respell, st.sampled_from(("home", "link", "copy"))),
    st.builds(KilledWrite, _tables, st.booleans()),
    st.just(Age()),
)
_CLEANUPS = st.one_of(
    st.builds(Cleanup, st.integers(0, 3), st.none(), st.booleans()),
    st.builds(Cleanup, st.none(), st.sampled_from((0, 3600)), st.booleans()),
    st.builds(Cleanup, st.none(), st.none(), st.booleans(), st.integers(1, 3)),
)
_ORPHANS = st.builds(Orphans, st.sampled_from((0, 7)))

_GROUPS = tuple(st.one_of(*group) for group in (_WRITES, _BRANCHES, _KEEPS, _ACCIDENTS, (_CLEANUPS, _ORPHANS)))


@st.composite
def _one_step(draw: st.DrawFn) -> History:
    """One step of any group; `one_of` over them would favour the group with the most kinds of steps."""
    return (draw(_GROUPS[draw(st.integers(0, len(_GROUPS) - 1))]),)


@st.composite
def _chain(draw: st.DrawFn) -> History:
    """A fork, a branch made from it, and what becomes of them."""
    parent, child = draw(st.permutations(NAMES))[:2]
    table = draw(_tables)
    steps: list[Step] = [WriteBranch(parent, table), LazyBranch(child, parent)]
    if draw(st.booleans()):
        steps.append(WriteBranch(child, table))
    if draw(st.booleans()):
        steps.append(Tag(table, 0, draw(st.sampled_from((parent, child)))))
    for name in (child, parent)[: draw(st.integers(0, 2))]:
        steps.append(DeleteBranch(name, draw(st.booleans())))
    return tuple(steps)


@st.composite
def _kept_orphan(draw: st.DrawFn) -> History:
    """A fork that nobody publishes any more, and somebody who wants it all the same."""
    name, table = draw(_names), draw(_tables)
    keep = draw(st.sampled_from((Tag(table, 0, name), Hold(table, 0, name))))
    return (WriteBranch(name, table), keep, DeleteBranch(name, orphans=True))


@st.composite
def _old_pin(draw: st.DrawFn) -> History:
    """A branch that reads what main left behind."""
    table = draw(_tables)
    write = draw(st.sampled_from((Load(table), Update(table), Delete(table, 1), Compact(table))))
    name = draw(_names)
    step = draw(st.sampled_from((LazyBranch(name, None, 1), LazyBranch(name, None, 2))))
    return (Load(table), write, step, *draw(st.sampled_from(((), (WriteBranch(name, table),)))))


@st.composite
def _litter(draw: st.DrawFn) -> History:
    """Files of a write that died, old enough for Lance to take them."""
    table = draw(_tables)
    later = draw(st.sampled_from(((), (Age(),), (Orphans(0),), (Age(), Orphans(7)))))
    return (Load(table), KilledWrite(table, draw(st.booleans())), *later)


def histories(most: int = 6) -> st.SearchStrategy[History]:
    """Single steps and short scenes in any order; a cleanup ends it, which is what it is about."""
    one = _one_step()
    parts = st.lists(
        st.one_of(one, one, one, _chain(), _kept_orphan(), _old_pin(), _litter()), min_size=3, max_size=most
    )
    return st.builds(lambda chosen, last: (*(step for part in chosen for step in part), last), parts, _CLEANUPS)
