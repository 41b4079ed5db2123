"""Which versions a policy wants gone, and which of them may go."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph_ops import serde
from omnigraph_ops.cleanup.forks import removal_order
from omnigraph_ops.cleanup.plan import candidates, check_policy, removable, verify_digest
from omnigraph_ops.cleanup.protect import Protection
from omnigraph_ops.edges.lance_cleanup import VersionFacts
from omnigraph_ops.errors import InvalidInput, StalePlan
from omnigraph_ops.models import CleanupPlan, ProtectedVersion, RetentionPolicy

NOW = 1000.0


def history(*versions: int) -> tuple[VersionFacts, ...]:
    """Version `n` was committed at second `n * 10`."""
    return tuple(VersionFacts(version=v, committed_at=v * 10.0) for v in versions)


def policy(keep: int | None = None, older_than: int | None = None) -> RetentionPolicy:
    return RetentionPolicy(keep_versions=keep, older_than_secs=older_than)


def protection(floor: int, *held: int) -> Protection:
    return Protection(
        versions=tuple(ProtectedVersion(version=v, reasons=("held",)) for v in (floor, *held)),
        floor=floor,
        floor_reason="published on main",
    )


@pytest.mark.parametrize(
    ("keep", "gone"),
    [(0, (1, 2, 4, 5)), (1, (1, 2, 4, 5)), (2, (1, 2, 4)), (4, (1,)), (5, ()), (6, ()), (10**9, ())],
)
def test_keep_leaves_exactly_that_many(keep: int, gone: tuple[int, ...]) -> None:
    assert candidates(history(1, 2, 4, 5, 9), policy(keep), NOW) == gone


@pytest.mark.parametrize(
    ("seconds", "gone"), [(0, (1, 2)), (979, (1, 2)), (980, (1,)), (981, (1,)), (990, ()), (2**64, ())]
)
def test_older_than_is_strict_and_never_takes_the_newest(seconds: int, gone: tuple[int, ...]) -> None:
    assert candidates(history(1, 2, 3), policy(older_than=seconds), NOW) == gone


def test_both_bounds_must_agree() -> None:
    versions = history(1, 2, 3, 4)
    assert candidates(versions, policy(2, 985), NOW) == (1,)
    assert candidates(versions, policy(4, 0), NOW) == ()


def test_an_empty_history_has_no_candidates() -> None:
    assert candidates((), policy(1), NOW) == ()


def test_the_floor_stops_the_range_and_says_why() -> None:
    assert removable((1, 2, 3, 4), protection(3)) == ((1, 2), "version 3: published on main")


def test_reaching_the_floor_itself_blocks_nothing() -> None:
    assert removable((1, 2), protection(3)) == ((1, 2), None)


def test_held_versions_below_the_floor_stay() -> None:
    assert removable((1, 2, 3), protection(9, 2)) == ((1, 3), None)


@given(
    versions=st.sets(st.integers(1, 60), min_size=1),
    keep=st.none() | st.integers(0, 70),
    older_than=st.none() | st.integers(0, 2000),
    floor=st.integers(1, 60),
    held=st.sets(st.integers(1, 60)),
)
def test_nothing_protected_ever_goes(
    versions: set[int], keep: int | None, older_than: int | None, floor: int, held: set[int]
) -> None:
    existing = history(*sorted(versions))
    guard = protection(floor, *held)
    wanted = candidates(existing, policy(keep, older_than), NOW)
    gone, _ = removable(wanted, guard)
    assert set(gone) <= versions - {max(versions)}
    assert all(v < floor and v not in held for v in gone)
    assert list(gone) == sorted(gone)
    assert len(versions) - len(gone) >= min(len(versions), max(keep or 1, 1))
    if older_than is not None:
        assert all(v * 10.0 < NOW - older_than for v in gone)


@pytest.mark.parametrize("bad", [policy(), policy(-1), policy(older_than=-1), policy(3, -1)])
def test_a_policy_needs_a_sane_bound(bad: RetentionPolicy) -> None:
    with pytest.raises(InvalidInput):
        check_policy(bad)


@pytest.mark.parametrize("good", [policy(0), policy(older_than=0), policy(1, 1)])
def test_one_bound_is_enough(good: RetentionPolicy) -> None:
    check_policy(good)


def test_children_go_before_their_parents() -> None:
    assert removal_order(["a", "b/c", "a/b", "a/b/c"]) == ["a/b/c", "a/b", "b/c", "a"]


def test_an_altered_plan_is_refused() -> None:
    bare = CleanupPlan(uri="/g", stamp=6, policy=policy(2), planned_at_us=1, tables=(), orphaned_forks=(), digest="")
    plan = replace(bare, digest=serde.digest(bare))
    verify_digest(plan)
    with pytest.raises(StalePlan, match="altered"):
        verify_digest(replace(plan, policy=policy(1)))
    with pytest.raises(StalePlan):
        verify_digest(bare)
