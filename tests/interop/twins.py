"""Two copies of one graph: the engine writes the same into both, and only one of them is maintained."""

from __future__ import annotations

import contextlib
import json
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeVar

from omnigraph_ops.config.settings import Settings
from omnigraph_ops.coordination.fence import fenced
from omnigraph_ops.graph import Graph, open_graph
from omnigraph_ops.models.cleanup import RetentionPolicy
from omnigraph_ops.stages.backup.take import backup_graph
from omnigraph_ops.stages.cleanup.apply import cleanup_all
from omnigraph_ops.stages.cleanup.plan import plan_cleanup
from omnigraph_ops.stages.optimize.run import optimize_all
from omnigraph_ops.stages.orphans.apply import apply_orphans
from omnigraph_ops.stages.orphans.plan import plan_orphans
from omnigraph_ops.stages.recovery.recover import recover
from omnigraph_ops.stages.repair.run import apply_repair, preview_repair
from tests.crash.harness_state import QUICK, expire_lease
from tests.interop.engine import EVOLVED_SCHEMA, SCHEMA, Engine, people
from tests.interop.schemas import KEYS, Question, Row, drawn_schema, questions
from tests.support.backups import restored
from tests.support.kills import CrashPoint, Killed, Killer, killing
from tests.support.orphans import age

_T = TypeVar("_T")
_QUERIES = {
    "age": "match {{ $p: Person {{ age: {age} }} }} return {{ $p.name }}",
    "name": 'match {{ $p: Person {{ name: "{name}" }} }} return {{ $p.name, $p.bio }}',
    "likes": 'match {{ $p: Person {{ name: "{name}" }} $p likes $f }} return {{ $f.name }}',
    "tier": 'match {{ $p: Person {{ tier: "pro" }} }} return {{ $p.name }}',
}
"""By an index each."""
_TEXT = 'match {{ $p: Person search($p.bio, "{word}") }} return {{ $p.name }}'
_WAYS: dict[str, tuple[object, ...]] = {
    "small_table_bytes": (0, 10**7),
    "policy": ("converge", "tiered"),
    "binary_copy": ("auto", "always", "never"),
    "commit_batch_tasks": (0, 1),
    "retrain_vectors": (False, True),
}
"""Settings of an optimize, each of which may have any of these values."""
_MOST_CALLS = 90
_SETTLED = {"rolled_forward", "rolled_back", "stale"}
Rows = list[str]


class TwinFailed(Exception):
    """The engine fails on the graph that nobody maintained, and not on the other one: a fault of its own."""


@dataclass(slots=True)
class Twins:
    """A random history of both; every step ends with a comparison."""

    oracle: Engine
    folder: Path
    draw: random.Random
    branches: list[str] = field(default_factory=lambda: ["main"])
    written: set[str] = field(default_factory=lambda: {"main"})
    """The branches that a load went to."""
    people: int = 8
    """How many there were ever."""
    evolved: bool = False
    said: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.begin(SCHEMA, people(0, self.people))

    def begin(self, schema: str, rows: list[dict[str, object]]) -> None:
        """Make both, with their first rows."""
        self.oracle.init(self.graph, schema)
        shutil.copytree(self.graph, self.control)
        self.load(rows, "append", "main")

    @property
    def graph(self) -> Path:
        """The maintained one. What branches record is its address, so the twin takes its place to be worked on."""
        return self.folder / "g.omni"

    @property
    def control(self) -> Path:
        """The other one, where it waits."""
        return self.folder / "control"

    def step(self) -> None:
        """One write of the engine into both, and nearly as often some maintenance of one. Writes."""
        self.draw.choice((*[self.write] * 2, self.update, self.delete, *self.rarer))()
        self.compare()
        if self.draw.random() < 0.6:
            work = self.draw.choice(MAINTENANCE)
            self.said.append(f"maintained: {work.__name__}")
            work(self)
            self.compare()

    @property
    def rarer(self) -> tuple[Callable[[], None], ...]:
        return (self.branch, self.merge, self.evolve)

    def write(self) -> None:
        self.load(people(self.people, 8), self.draw.choice(("append", "merge")), self.draw.choice(self.branches))
        self.people += 8

    def update(self) -> None:
        first = self.draw.randrange(max(1, self.people - 4))
        rows = people(first, self.draw.randrange(1, 5), bio=f"rather {self.draw.randrange(9)}")
        self.load(rows, "merge", self.draw.choice(self.branches))

    def delete(self) -> None:
        self.forget(f'Person where name = "p{self.draw.randrange(self.people)}"')

    def forget(self, what: str) -> None:
        self.run("mutate", "--store", str(self.graph), "-e", f"query d() {{ delete {what} }}", "--quiet")
        # 0.7.2 leaves deletes that matched nothing unpublished, and refuses the next one of that table.
        self.both(lambda: apply_repair(self.opened(), preview_repair(self.opened()), force=True))

    def branch(self) -> None:
        name = f"team/b{len(self.said)}"
        # On a branch of a branch no engine finds the indexes that the first one inherited, its own optimize's included.
        if len(self.branches) < 4 and self.run("branch", "create", "--uri", str(self.graph), "--from", "main", name):
            self.branches.append(name)

    def merge(self) -> None:
        if len(self.branches) > 1:
            source, target = self.draw.sample(self.branches, 2)
            if source != "main" and target not in self.written:
                return  # it would become a branch of a branch
            self.run("branch", "merge", source, "--into", target, "--uri", str(self.graph))

    def evolve(self) -> None:
        if not self.evolved and self.branches == ["main"]:
            self.evolved = self.apply(EVOLVED_SCHEMA)

    def apply(self, schema: str, *more: str) -> bool:
        source = self.folder / "evolved.pg"
        source.write_text(schema)
        return self.run("schema", "apply", "--schema", str(source), "--store", str(self.graph), *more)

    def load(self, rows: list[dict[str, object]], mode: str, branch: str) -> None:
        data = self.folder / "rows.jsonl"
        data.write_text("".join(json.dumps(row) + "\n" for row in rows))
        if self.run("load", "--data", str(data), "--mode", mode, "--branch", branch, "--quiet", str(self.graph)):
            self.written.add(branch)

    def run(self, *arguments: str) -> bool:
        """A command of the engine on both, which takes the same end; whether it succeeded."""
        ours, control = self.both(lambda: self.oracle.run(*arguments, check=False))
        self.said.append(f"{ours.returncode}: {' '.join(arguments)}")
        if control.returncode and not ours.returncode:
            raise TwinFailed(control.stderr)
        assert ours.returncode == control.returncode, (self.said, ours.stderr, control.stderr)
        return ours.returncode == 0

    def both(self, act: Callable[[], _T]) -> tuple[_T, _T]:
        ours = act()
        self._swap()
        control = act()
        self._swap()
        return ours, control

    def _swap(self) -> None:
        aside = self.folder / "aside"
        self.graph.rename(aside)
        self.control.rename(self.graph)
        aside.rename(self.control)

    def opened(self, **settings: object) -> Graph:
        return open_graph(str(self.graph), Settings.model_validate(settings))

    def compare(self) -> None:
        """Every row of every branch, and what the indexes of one find."""
        for branch in self.branches:
            ours, control = self.both(partial(self.rows, branch))
            assert ours == control, (self.said, branch, set(ours) ^ set(control))
        self.compare_answers(self.draw.choice(self.branches))

    def compare_answers(self, branch: str) -> None:
        """What an index each finds of somebody, and of the words of everybody."""
        persons = [row["data"] for row in map(json.loads, self.rows(branch)) if row.get("type") == "Person"]
        someone = self.draw.choice(persons) if persons else {"name": "nobody", "age": 0}
        for name, query in _QUERIES.items():
            ours, control = self.both(partial(self.ask, branch, query.format(**someone)))
            assert ours == control, (self.said, branch, name, someone, ours, control)
        self.compare_words(branch, persons)

    def compare_words(self, branch: str, persons: list[dict[str, object]]) -> None:
        """No hit is lost. What a row no longer says may be found: 0.7.2 does until an updated row is indexed again."""
        word = self.draw.choice(("likes", "graphs", "rather"))
        saying = {str(p["name"]) for p in persons if word in str(p["bio"]).split()}
        ours, control = self.both(partial(self.ask, branch, _TEXT.format(word=word)))
        if isinstance(control, list) and saying <= set(control):
            assert isinstance(ours, list), (self.said, branch, word, ours)
            assert saying <= set(ours), (self.said, branch, word)
            assert self.oracle.stamp == 3 or set(ours) == set(control), (self.said, branch, word)

    def settle(self) -> None:
        """After an optimize of ours the engine's own finds nothing to do; for a branch we leave blobs. Writes."""
        assert not optimize_all(self.opened(exclusive=True)).failed
        self.compare()
        if self.branches != ["main"]:
            return
        committed = [key for key, table in self.oracle.optimize(self.graph).items() if table["committed"]]
        assert not committed, (self.said, committed)

    def rows(self, branch: str) -> Rows:
        """Sorted; edges without their ids, which are the engine's to choose."""
        found = [json.loads(line) for line in self.oracle.export(self.graph, branch)]
        for row in found:
            if "edge" in row:
                row.pop("id", None)
                row.get("data", {}).pop("id", None)
        return sorted(json.dumps(row, sort_keys=True) for row in found)

    def ask(self, branch: str, query: str) -> Rows | str:
        """Sorted rows, of one column its cells; what the engine says where it fails."""
        words = ("--store", str(self.graph), "--branch", branch, "-e", f"query q() {{ {query} }}", "--json")
        done = self.oracle.run("query", "q", *words, check=False)
        if done.returncode:
            return "failed"
        rows = [tuple(map(str, row.values())) for row in json.loads(done.stdout)["rows"]]
        return sorted(row[0] if len(row) == 1 else str(row) for row in rows)


class RandomTwins(Twins):
    """Of a schema that is drawn, too: any types of properties, indexed or not, any edges."""

    def __post_init__(self) -> None:
        # 0.7.2 takes texts alone for keys.
        self.schema = drawn_schema(self.draw, tuple(KEYS) if self.oracle.stamp == 6 else ("String",))
        self.said.append(self.schema.text)
        self.begin(self.schema.text, self.schema.rows(self.draw, 0, self.people))

    @property
    def rarer(self) -> tuple[Callable[[], None], ...]:
        return (self.branch, self.merge, self.unbranch, self.evolve, self.evolve)

    def unbranch(self) -> None:
        if len(self.branches) > 1:
            name = self.draw.choice(self.branches[1:])
            if self.run("branch", "delete", "--uri", str(self.graph), name):
                self.branches.remove(name)

    def write(self) -> None:
        rows, mode = self.schema.rows(self.draw, self.people, 8), self.draw.choice(("append", "merge"))
        self.load(rows + self.schema.links(self.draw, self.people, 8), mode, self.draw.choice(self.branches))
        self.people += 8

    def update(self) -> None:
        rows = self.schema.rows(self.draw, self.draw.randrange(self.people), self.draw.randrange(1, 5))
        self.load(rows, "merge", self.draw.choice(self.branches))

    def delete(self) -> None:
        kind = self.draw.choice(self.schema.nodes)
        self.forget(f"{kind.name} where key = {json.dumps(KEYS[kind.key](self.draw.randrange(self.people)))}")

    def evolve(self) -> None:
        evolved = self.schema.evolved(self.draw, len(self.said))
        more = self.draw.choice(((), (), ("--allow-data-loss",)))
        if self.branches == ["main"] and self.apply(evolved.text, *more):
            self.said.append(evolved.text)
            self.schema = evolved.settled()

    def compare_answers(self, branch: str) -> None:
        found = [row for row in map(json.loads, self.rows(branch)) if "type" in row]
        for row in self.draw.sample(found, min(2, len(found))):
            for question in questions(self.schema, self.draw, row):
                ours, control = self.both(partial(self.ask, branch, question.text))
                if isinstance(control, list):  # a search fails on a branch whose table has no index yet
                    assert self.same(question, found, ours, control), (self.said, branch, question, ours, control)

    def same(self, question: Question, found: list[Row], ours: Rows | str, control: Rows) -> bool:
        """Whether ours is as good an answer."""
        if self.oracle.stamp == 3 and question.word and isinstance(ours, list):
            # 0.7.2 also finds what a row no longer says, until it is indexed again.
            return set(control) & question.saying(found) <= set(ours)
        return ours == control


def optimize(twins: Twins) -> None:
    settings = {"exclusive": True, **{name: twins.draw.choice(values) for name, values in _WAYS.items()}}
    assert not optimize_all(twins.opened(**settings)).failed


def die_in_an_optimize(twins: Twins) -> None:
    """At any call that writes, in any way; then the engine's next write recovers, or a recover of ours, or both."""
    ways = {name: twins.draw.choice(values) for name, values in _WAYS.items()}
    graph = open_graph(str(twins.graph), QUICK.model_copy(update={"exclusive": True, **ways}))
    moment = twins.draw.randrange(_MOST_CALLS)

    def here(point: CrashPoint) -> bool:
        if point.index == moment:
            killer.mode = twins.draw.choice(point.modes)
            twins.said.append(f"killed: {killer.mode} {point}")
        return point.index == moment

    killer = Killer(root=twins.graph, when=here)
    with killing(killer), contextlib.suppress(Killed):
        optimize_all(graph)
    expire_lease(graph)
    twins.compare()
    if twins.draw.random() < 0.5:
        twins.write()
        twins.compare()
    unsettled = [o for o in recover(twins.opened(), grace_seconds=0).outcomes if o.action not in _SETTLED]
    assert not unsettled, (twins.said, unsettled)


def clean(twins: Twins) -> None:
    _clean(twins.opened())


def clean_behind_a_fence(twins: Twins) -> None:
    with fenced(twins.opened()) as graph:
        _clean(graph)


def _clean(graph: Graph) -> None:
    assert not cleanup_all(graph, plan_cleanup(graph, RetentionPolicy(keep_versions=1, between_pins=True))).failed


def remove_orphans(twins: Twins) -> None:
    age(twins.graph, days=40)
    assert not apply_orphans(twins.opened(), plan_orphans(twins.opened())).failed


def night(twins: Twins) -> None:
    for work in (optimize, clean_behind_a_fence, remove_orphans):
        work(twins)


def restore(twins: Twins) -> None:
    backup = twins.folder / f"backup-{len(twins.said)}"
    made = backup_graph(twins.opened(), str(backup)).backup
    shutil.rmtree(twins.graph)
    restored(made, twins.graph)


MAINTENANCE = (optimize, optimize, die_in_an_optimize, clean, clean_behind_a_fence, remove_orphans, night, restore)
