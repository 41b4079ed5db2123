"""A hold counts until it expires or its process is gone; one that cannot be read counts for everything."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from omnigraph_ops import serde
from omnigraph_ops.coordination import holds
from omnigraph_ops.coordination.environment import start_of, this_machine
from omnigraph_ops.coordination.freezes import active_freezes
from omnigraph_ops.coordination.holds import FreezeTerms, HeldVersion, Hold, HoldKind
from omnigraph_ops.coordination.state import HOLDS_DIR, REMOVALS_DIR
from omnigraph_ops.errors import CorruptGraph, InvalidInput, StalePlan
from omnigraph_ops.graph.layout import new_ulid, now_us
from omnigraph_ops.storage.store import Storage

HELD = HeldVersion(table_path="nodes/1", version=3)


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage(str(tmp_path))


def place(storage: Storage, ttl: float = 60.0, **fields: object) -> Hold:
    """A hold that was placed, with some of its fields changed afterwards."""
    made = holds.place_hold(storage, (HELD,), kind=HoldKind.FREEZE, reason="backup", ttl_seconds=ttl)
    changed = replace(made, **fields)
    storage.write(holds.hold_path(made.hold_id), serde.dumps(changed).encode())
    return changed


def dead_pid() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_a_hold_counts_until_it_is_released(storage: Storage) -> None:
    assert holds.active_holds(storage) == ()
    first, second = place(storage), place(storage)
    assert holds.active_holds(storage) == (first, second)
    assert "backup" in first.label()
    for _ in range(2):
        holds.release_hold(storage, first.hold_id)
    assert holds.active_holds(storage) == (second,)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells when a process was started")
def test_a_hold_of_a_killed_process_whose_number_another_one_has_now_does_not_count(storage: Storage) -> None:
    terms = {"kind": HoldKind.FREEZE, "reason": "backup", "ttl_seconds": 60.0, "freeze": FreezeTerms(tables=())}
    mine = holds.place_hold(storage, (), bound_to_process=True, **terms)
    assert mine.process_started == start_of(os.getpid())
    holds.write_hold(storage, replace(mine, hold_id=new_ulid(), process_started="1"))
    assert (holds.active_holds(storage), active_freezes(storage)) == ((mine,), (mine,))


def test_an_expired_hold_or_one_of_a_killed_process_does_not_count(storage: Storage) -> None:
    place(storage, expires_at=time.time() - 1)
    place(storage, machine=this_machine(), pid=dead_pid())
    elsewhere = place(storage, machine="another machine", pid=dead_pid())
    assert holds.active_holds(storage) == (elsewhere,)
    holds.sweep_holds(storage)
    assert len(storage.list(HOLDS_DIR)) == 1


def test_an_unreadable_hold_stops_everything_and_is_never_swept(storage: Storage) -> None:
    storage.write(f"{HOLDS_DIR}/odd.json", b"{}")
    with pytest.raises(CorruptGraph, match=r"what it protects is unknown.*nothing was deleted"):
        holds.active_holds(storage)
    holds.sweep_holds(storage)
    assert storage.list(HOLDS_DIR) == ("odd.json",)


@pytest.mark.parametrize(
    ("name", "way_out"),
    [
        ("01M85XWV5GXY09SSQWAMW7SA71", "run `omnigraph-ops unfreeze GRAPH 01M85XWV5GXY09SSQWAMW7SA71`"),
        ("odd", "delete it"),
    ],
)
def test_an_unreadable_hold_is_never_deleted_by_hand_where_tags_may_go_with_it(
    storage: Storage, name: str, way_out: str
) -> None:
    storage.write(f"{HOLDS_DIR}/{name}.json", b"{}")
    with pytest.raises(CorruptGraph, match=f"restore the file, or {way_out} when you know"):
        holds.active_holds(storage)


def test_a_plan_hold_ends_with_its_block_in_every_outcome(storage: Storage) -> None:
    with pytest.raises(RuntimeError), holds.plan_hold(storage, HELD, reason="rewrite", ttl_seconds=60) as hold:
        assert holds.active_holds(storage) == (hold,)
        assert (hold.kind, hold.pid) == (HoldKind.PLAN, os.getpid())
        raise RuntimeError
    assert storage.list(HOLDS_DIR) == ()


def test_a_record_counts_as_a_freeze_whatever_was_read_before_under_its_name(storage: Storage, tmp_path: Path) -> None:
    freeze = place(storage, freeze=FreezeTerms(tables=()))
    path, odd, other = holds.hold_path(freeze.hold_id), f"{HOLDS_DIR}/odd.json", Storage(str(tmp_path / "other"))
    storage.write(path, b"{")
    storage.write(odd, serde.dumps(replace(freeze, hold_id="odd", freeze=None)).encode())
    assert holds.freezes(storage) == ()
    for place_of in (storage, other):
        place_of.write(path, serde.dumps(freeze).encode())
    other.write(odd, serde.dumps(freeze).encode())
    assert (holds.freezes(storage), holds.freezes(other)) == ((freeze,), (freeze, freeze))


def test_who_holds_something_else_is_not_kept_from_it_by_an_announcement(storage: Storage) -> None:
    others = (replace(HELD, version=4), replace(HELD, branch="b"), replace(HELD, table_path="nodes/2"))
    with holds.announced(storage, HELD.table_path, branch=None, versions=(HELD.version,)):
        holds.refuse_removed(storage, others)
        with pytest.raises(StalePlan, match="version 3 of nodes/1 is being removed by a cleanup"):
            holds.refuse_removed(storage, (*others, HELD))
    holds.refuse_removed(storage, (HELD,))


@pytest.mark.parametrize("damaged", ["", "{", "[]", '{"versions": [3]}'])
def test_beside_an_announcement_that_cannot_be_read_nothing_is_held(storage: Storage, damaged: str) -> None:
    path = f"{REMOVALS_DIR}/{new_ulid()}.json"
    storage.write(path, damaged.encode())
    with pytest.raises(CorruptGraph, match=f"^{path} cannot be read, so what a cleanup is about to remove is unknown"):
        holds.refuse_removed(storage, (HELD,))
    holds.sweep_removals(storage)
    assert storage.exists(path)


def test_an_announcement_of_days_ago_that_cannot_be_read_stops_nobody_and_goes(storage: Storage) -> None:
    old, foreign = (f"{REMOVALS_DIR}/{name}.json" for name in (new_ulid(now_us() - 2 * 86_400_000_000), "readme"))
    for path in (old, foreign):
        storage.write(path, b"")
    holds.refuse_removed(storage, (HELD,))
    holds.sweep_removals(storage)
    assert (storage.exists(old), storage.exists(foreign)) == (False, True)


def test_only_an_id_names_a_hold(storage: Storage) -> None:
    with pytest.raises(InvalidInput):
        holds.release_hold(storage, "../lease")


def test_a_hold_behind_a_link_counts(storage: Storage, tmp_path: Path) -> None:
    hold = place(storage)
    file = Path(storage.root, holds.hold_path(hold.hold_id))
    aside = file.rename(tmp_path / "aside.json")
    file.symlink_to(aside)
    assert [found.hold_id for found in holds.active_holds(storage)] == [hold.hold_id]
