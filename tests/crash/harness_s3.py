"""The same stage on a store: objects instead of files, and a bucket that is put back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from omnigraph_ops.coordination.store_check import refuse_unsafe_store
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.layout import COMMITS_DIR, MANIFEST_DIR
from omnigraph_ops.graph.opening import open_graph
from tests.crash.conftest import Stage
from tests.crash.harness_scenarios import Scenario
from tests.crash.harness_state import QUICK
from tests.support.kills import AFTER, BEFORE, NO_VERSION, ONE_VERSION_SHORT, Killer, shorten
from tests.support.rows import rows_everywhere
from tests.support.s3 import s3_client, upload_graph

BRANCH = "lazy-1"


@dataclass(slots=True)
class RemoteKiller(Killer):
    """A put is there or not, so no small file is half written; a store keeps no version hint."""

    def small_file(self, call: str, path: str, act: Callable[[], Any], half: Callable[[], Any] | None) -> Any:
        """A call of `Storage`: one request."""
        return Killer.small_file(self, call, path, act, None)

    def lance_commit(self, call: str, uri: str, act: Callable[[], Any], versions: int = 1) -> Any:
        """A call that makes `versions` Lance versions of the dataset at `uri`."""
        short = (ONE_VERSION_SHORT,) if versions > 1 else ()
        folder = uri.removeprefix("s3://")
        modes = (BEFORE, NO_VERSION, *short, AFTER)
        return self._call(call, shorten(Path(folder), self.root), modes, act, lambda: self._torn(folder, act))

    def task(self, uri: str, act: Callable[[], Any]) -> Any:
        """A rewrite that writes data files and makes no version."""
        return Killer.task(self, uri.removeprefix("s3://"), act)

    def _torn(self, folder: str, act: Callable[[], Any]) -> None:
        """Commit, then take back the manifests that the process did not live to put."""
        bucket, _, key = folder.partition("/")
        known = set(_keys(bucket, f"{key}/_versions/"))
        act()
        # V2 names count down, so the newest version sorts first.
        fresh = sorted(set(_keys(bucket, f"{key}/_versions/")) - known)
        for lost in fresh[: {NO_VERSION: len(fresh), ONE_VERSION_SHORT: 1}[self.mode]]:
            s3_client().delete_object(Bucket=bucket, Key=lost)


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
    return Stage(
        root=uri,
        rows=rows_everywhere(graph),
        settings=scenario.settings,
        run=scenario.run,
        again=scenario.again,
        reset=partial(_restore, bucket, _contents(bucket)),
        look=partial(_keys, bucket),
        killer=partial(RemoteKiller, root=Path(bucket) / key),
    )


def _branch(graph: Graph) -> None:
    """A branch of the graph without writes of its own, made here because it records where. Writes."""
    for path in [MANIFEST_DIR] + ([COMMITS_DIR] if graph.stamp == 3 else []):
        graph.lance.open(graph.context.location.uri(path)).create_branch(BRANCH)


def _contents(bucket: str) -> dict[str, tuple[str, bytes]]:
    client = s3_client()
    return {key: (tag, client.get_object(Bucket=bucket, Key=key)["Body"].read()) for key, tag in _keys(bucket).items()}


def _restore(bucket: str, pristine: dict[str, tuple[str, bytes]]) -> None:
    client, now = s3_client(), _keys(bucket)
    for key in now.keys() - pristine.keys():
        client.delete_object(Bucket=bucket, Key=key)
    for key, (tag, body) in pristine.items():
        if now.get(key) != tag:
            client.put_object(Bucket=bucket, Key=key, Body=body)


def _keys(bucket: str, prefix: str = "") -> dict[str, str]:
    return dict(_listed(bucket, prefix))


def _listed(bucket: str, prefix: str) -> Iterator[tuple[str, str]]:
    for page in s3_client().get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix):
        for found in page.get("Contents", ()):
            yield found["Key"], found["ETag"]
