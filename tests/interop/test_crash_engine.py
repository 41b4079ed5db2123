"""A graph that we crashed in the middle of: the real engine's next open finishes it as well."""

from __future__ import annotations

from pathlib import Path

import pytest

from omnigraph_ops.graph.opening import open_graph
from omnigraph_ops.graph.sidecars import sidecar_names
from tests.crash.conftest import build_stage
from tests.crash.harness_scenarios import SCENARIOS
from tests.crash.harness_state import QUICK, check_lineage, check_readable
from tests.interop.engine import engine
from tests.support.kills import AFTER, BEFORE, HALF_WRITTEN
from tests.support.rows import rows_everywhere

pytestmark = pytest.mark.interop
_SAMPLE = (
    ("optimize_indices", AFTER),
    ("move files", HALF_WRITTEN),
    ("write __recovery", AFTER),
    ("put nodes", BEFORE),
    ("put nodes", AFTER),
    ("merge_insert", BEFORE),
    ("merge_insert", AFTER),
    ("delete __recovery", BEFORE),
    ("delete __recovery", AFTER),
)


@pytest.mark.parametrize("stamp", [3, 6])
@pytest.mark.parametrize("name", ["small", "journalled"])
def test_the_engine_finishes_what_we_crashed(tmp_path: Path, name: str, stamp: int) -> None:
    oracle = engine(stamp)
    built = build_stage(tmp_path, next(s for s in SCENARIOS if s.name == name), stamp)
    root = Path(built.root)
    before, unordered = oracle.export(root), rows_everywhere(open_graph(built.root, QUICK), in_order=False)
    deaths = built.deaths()
    for call, mode in _SAMPLE:
        kill = next(k for k in deaths if f"{k.point.call} {k.point.target}".startswith(call) and k.mode == mode)
        built.kill(kill)
        check_readable(built.root, built.rows)
        oracle.optimize(root)
        assert oracle.export(root) == before, str(kill)
        graph = open_graph(built.root, QUICK)
        assert not sidecar_names(graph.storage), str(kill)
        entries = graph.maintained(graph.state())
        heads = {e.table_key: graph.open_head(e).version for e in entries}
        assert heads == {e.table_key: e.version for e in entries}, str(kill)
        # Where fragments are rewritten in two groups, the engine has that first which is done first.
        check_readable(built.root, unordered, in_order=False)
        check_lineage(graph, None)
