"""The same stage on a store: objects instead of files, and a bucket that is put back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from omnigraph_ops.coordination.environment import refuse_unsafe_store
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.layout import COMMITS_DIR, MANIFEST_DIR
from omnigraph_ops.graph.opening import open_graph
from tests.crash.conftest import Stage
from tests.crash.harness_kills import Witness
from tests.crash.harness_scenarios import Scenario
from tests.crash.harness_state import QUICK
from tests.support.kills import AFTER, BEFORE, NO_VERSION, ONE_VERSION_SHORT, Killer, shorten
from tests.support.places import State, none
from tests.support.rows import rows_everywhere
from tests.support.s3 import s3_client, upload_graph

BRANCH = "lazy-1"


@dataclass(slots=True)
class RemoteWitness(Witness):
    """A put is there or not, so no small file is half written; a store keeps no version hint."""

    def small_file(self, call: str, path: str, act: Callable[[], Any], half: Callable[[], Any] | None) -> Any:
        """A call of `Storage`: one request."""
        return Killer.small_file(self, call, path, act, None)

    def lance_commit(self, call: str, uri: str, act: Callable[[], Any], versions: int = 1) -> Any:
        """A call that makes `versions` Lance versions of the dataset at `uri`."""
        short = (ONE_VERSION_SHORT,) if versions > 1 else ()
        folder = uri.removeprefix("s3://")
        modes = (BEFORE, NO_VERSION, *short, AFTER)
        return self._call(call, shorten(Path(folder), self.root), modes, act, lambda: None)

    def task(self, uri: str, act: Callable[[], Any]) -> Any:
        """A rewrite that writes data files and makes no version."""
        return Killer.task(self, uri.removeprefix("s3://"), act)


def build_s3_stage(folder: Path, scenario: Scenario, stamp: int) -> Stage:
    """The graph of a scenario, built below `folder`, in a bucket of its own with a branch. Writes."""
    local = folder / "graph"
    scenario.build(str(local), stamp)
    uri = upload_graph(local)
    graph = open_graph(uri, QUICK)
    _branch(graph)
    # Done once per process: in the first run it would be calls that the next does not make.
    refuse_unsafe_store(graph.storage)
    bucket, _, key = uri.removeprefix("s3://").partition("/")
    place = Bucket(bucket)
    return Stage(
        root=uri,
        rows=rows_everywhere(graph),
        settings=scenario.settings,
        run=scenario.run,
        again=scenario.again,
        place=place,
        pristine=place.look(),
        witness=partial(RemoteWitness, root=Path(bucket) / key),
    )


def _branch(graph: Graph) -> None:
    """A branch of the graph without writes of its own, made here because it records where. Writes."""
    for path in [MANIFEST_DIR] + ([COMMITS_DIR] if graph.stamp == 3 else []):
        graph.lance.open(graph.storage.uri(path)).create_branch(BRANCH)


class Bucket:
    """A graph in a bucket. An object is its tag."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._contents: dict[tuple[str, object], bytes] = {}

    def look(self) -> State:
        """What is there, which can be put back from now on. Reads."""
        found = dict(self._listed())
        for key, tag in found.items():
            if (key, tag) not in self._contents:
                self._contents[key, tag] = s3_client().get_object(Bucket=self._name, Key=key)["Body"].read()
        return found

    def put(self, state: State, spared: Callable[[str], bool] = none) -> None:
        """Make it what it was; only differences are touched. Writes."""
        now = dict(self._listed())
        for key in now.keys() - state.keys():
            if not spared(key):
                s3_client().delete_object(Bucket=self._name, Key=key)
        for key, tag in state.items():
            if now.get(key) != tag and not spared(key):
                s3_client().put_object(Bucket=self._name, Key=key, Body=self._contents[key, tag])

    def _listed(self) -> Iterator[tuple[str, str]]:
        for page in s3_client().get_paginator("list_objects_v2").paginate(Bucket=self._name):
            for found in page.get("Contents", ()):
                yield found["Key"], found["ETag"]
