"""Drift that lost something, as a broken rewrite would leave it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from lance import optimize

from omnigraph_ops.graph import Graph
from omnigraph_ops.lance.rewrites import with_fragments
from omnigraph_ops.lance.tables import execute_task, plan_tasks
from tests.support.writers import entry_of

_RewriteResult: Any = optimize.RewriteResult


def lossy_result(graph: Graph, table_key: str) -> str:
    """The result of a compaction that forgot the last of its fragments."""
    pinned = graph.open_pinned(entry_of(graph, table_key))
    task, *_ = plan_tasks(pinned, 1 << 20)
    result = json.loads(execute_task(pinned, task.payload))
    short = with_fragments(task.payload, task.fragment_ids[:-1])
    result["new_fragments"] = json.loads(execute_task(pinned, short))["new_fragments"]
    return json.dumps(result)


def commit_lossy_rewrite(graph: Graph, table_key: str) -> None:
    """Commit such a result without publishing it. Writes."""
    result = _RewriteResult.from_json(lossy_result(graph, table_key))
    optimize.Compaction.commit(graph.open_head(entry_of(graph, table_key)), [result])


def commit_rewrite_and_lose_a_file(graph: Graph, table_key: str) -> None:
    """Commit a good rewrite without publishing it, and remove a file that it made. Writes."""
    entry = entry_of(graph, table_key)
    head = graph.open_head(entry)
    task, *_ = plan_tasks(head, 1 << 20)
    payload = execute_task(head, task.payload)
    optimize.Compaction.commit(head, [_RewriteResult.from_json(payload)])
    name = json.loads(payload)["new_fragments"][0]["files"][0]["path"]
    (Path(graph.uri) / entry.path / "data" / name).unlink()
