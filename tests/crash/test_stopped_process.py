"""A process that the kernel stops in the middle of a window, for longer than its lease: others go on, then it wakes up.

It slept between its last question whether the lease is its own and the effect: only the store itself can refuse that
effect now.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from omnigraph_ops.config.settings import Settings
from omnigraph_ops.coordination.freezes import unfreeze
from omnigraph_ops.graph import Graph, open_graph
from omnigraph_ops.models.cleanup import RetentionPolicy
from omnigraph_ops.stages.cleanup.apply import cleanup_all
from omnigraph_ops.stages.cleanup.plan import plan_cleanup
from omnigraph_ops.stages.freeze.observe import verify_cut
from omnigraph_ops.stages.freeze.take import freeze_graph
from omnigraph_ops.stages.optimize.run import optimize_all
from omnigraph_ops.stages.recovery.recover import recover
from tests.crash.conftest import Stage, build_stage
from tests.crash.harness_scenarios import SCENARIOS
from tests.crash.harness_state import check_converged, check_readable, converge
from tests.support.killed_runs import Kill, run_command
from tests.support.rows import rows_everywhere
from tests.support.writers import copies, write

pytestmark = pytest.mark.crash
_TTL_SECONDS = 0.3
_ENVIRONMENT = {
    "OMNIGRAPH_OPS_LEASE_TTL_SECONDS": str(_TTL_SECONDS),
    "OMNIGRAPH_OPS_RECOVERY_GRACE_SECONDS": "0",
    "OMNIGRAPH_MAINTENANCE_CONCURRENCY": "1",
}
_OTHERS = Settings(lease_ttl_seconds=_TTL_SECONDS, lease_wait_seconds=30, recovery_grace_seconds=0)
_TABLE = "node:Doc"
Meanwhile = Callable[[Graph], Callable[[Graph], None]]
"""What others do; it returns what must hold of their work at the end."""


def _rows(graph: Graph, *, in_order: bool = True) -> Callable[[Graph], None]:
    rows = rows_everywhere(graph, in_order=in_order)
    return lambda after: check_readable(str(after.uri), rows, in_order=in_order)


def _night(graph: Graph) -> Callable[[Graph], None]:
    same_rows = _rows(graph)
    recover(graph, grace_seconds=0)
    assert not optimize_all(graph).failed
    cleanup_all(graph, plan_cleanup(graph, RetentionPolicy(keep_versions=1)))
    return same_rows


def _load(graph: Graph) -> Callable[[Graph], None]:
    recover(graph, grace_seconds=0)
    # One version, the one that the process was about to make.
    write(graph, _TABLE, copies("meanwhile-"))
    # The process may commit its rewrite beside these rows: fragments are sorted by id, so it lands behind them.
    return _rows(graph, in_order=False)


def _freeze(graph: Graph) -> Callable[[Graph], None]:
    same_rows = _rows(graph)
    recover(graph, grace_seconds=0)
    freeze = freeze_graph(graph, reason="a backup", ttl_seconds=3600)

    def still_whole(after: Graph) -> None:
        same_rows(after)
        assert not verify_cut(after, freeze)
        unfreeze(after, freeze.freeze_id)

    return still_whole


@pytest.mark.night("combinations")
@pytest.mark.parametrize("stamp", [3, 6])
@pytest.mark.parametrize("meanwhile", [_night, _load, _freeze], ids=lambda act: act.__name__[1:])
def test_a_process_that_wakes_up_after_its_lease_harms_nothing(
    tmp_path: Path, stamp: int, meanwhile: Meanwhile
) -> None:
    built = build_stage(tmp_path, next(s for s in SCENARIOS if s.name == "small"), stamp)
    words = ["optimize", built.root, "--table", _TABLE]
    run = partial(run_command, words, Path(built.root), tmp_path / "said", environment=_ENVIRONMENT)
    whole = run()
    assert whole.code == 0, whole.err
    for effect in ("put nodes/", "merge_insert __manifest", "delete __recovery/"):
        (moment, *_) = (n for n, name in enumerate(whole.names) if name.startswith("before") and effect in name)
        built.reset()
        kept: list[Callable[[Graph], None]] = []
        ended = run(
            kill=Kill(moment=moment, signals=(signal.SIGSTOP,)),
            while_stopped=lambda: kept.append(meanwhile(open_graph(built.root, _OTHERS))),  # noqa: B023
        )
        assert ended.code >= 0, ended.err
        assert "Traceback" not in ended.err
        _check(built, kept[0])


def _check(built: Stage, kept: Callable[[Graph], None]) -> None:
    graph = open_graph(built.root, _OTHERS)
    kept(graph)
    rows = rows_everywhere(graph)
    time.sleep(_TTL_SECONDS)
    converge(built.root)
    check_readable(built.root, rows)
    check_converged(built.root)
