"""Which versions a policy wants gone, and which of them may go."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph_ops.errors import InvalidInput
from omnigraph_ops.lance.gateway import BranchRef
from omnigraph_ops.lance.versions import VersionFacts
from omnigraph_ops.models.cleanup import ProtectedVersion, RetentionPolicy, SnapshotExpiry
from omnigraph_ops.requests import build
from omnigraph_ops.stages.cleanup.plan import removal_order
from omnigraph_ops.stages.cleanup.policy import Protection, candidates, removable
from omnigraph_ops.stages.cleanup.stage import CleanupRequest

NOW = 1_000_000_000


def history(*versions: int) -> tuple[VersionFacts, ...]:
    """Version `n` was committed at second `n * 10`."""
    return tuple(VersionFacts(version=v, committed_at_us=v * 10_000_000) for v in versions)


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


@pytest.mark.parametrize(("left", "gone"), [(1, ()), (3_599, ()), (3_601, (1,))])
def test_a_version_that_was_current_within_the_last_hour_stays(left: int, gone: tuple[int, ...]) -> None:
    """A branch that the engine began to make from it may come into being after the cleanup."""
    now = 10 * 86_400 * 1_000_000
    versions = [VersionFacts(version=n, committed_at_us=at) for n, at in ((1, 0), (2, now - left * 1_000_000))]
    assert candidates(versions, policy(older_than=7 * 86_400), now) == gone


def test_both_bounds_must_agree() -> None:
    versions = history(1, 2, 3, 4)
    assert candidates(versions, policy(2, 985), NOW) == (1,)
    assert candidates(versions, policy(4, 0), NOW) == ()


def test_without_a_bound_nothing_goes() -> None:
    assert candidates(history(1, 2, 3), RetentionPolicy(), NOW) == ()


def test_an_empty_history_has_no_candidates() -> None:
    assert candidates((), policy(1), NOW) == ()


def test_the_floor_stops_the_range_and_says_why() -> None:
    assert removable((1, 2, 3, 4), protection(3), between_pins=False) == ((1, 2), "version 3: published on main")


def test_the_floor_stops_nothing_where_all_above_it_is_held_anyway() -> None:
    assert removable((1, 2, 3, 4), protection(3, 4), between_pins=False) == ((1, 2), None)


def test_the_floor_stops_no_expiry_that_is_at_its_limit_below_it() -> None:
    expiry = SnapshotExpiry(expire_limit=1)
    assert removable((1, 2, 3, 4), protection(3), between_pins=False, expiry=expiry) == ((1,), None)


def test_reaching_the_floor_itself_blocks_nothing() -> None:
    assert removable((1, 2), protection(3), between_pins=False) == ((1, 2), None)


def test_held_versions_below_the_floor_stay() -> None:
    assert removable((1, 2, 3), protection(9, 2), between_pins=False) == ((1, 3), None)


@pytest.mark.slow
@given(
    versions=st.sets(st.integers(1, 60), min_size=1),
    keep=st.none() | st.integers(0, 70),
    older_than=st.none() | st.integers(0, 2000),
    floor=st.integers(1, 60),
    held=st.sets(st.integers(1, 60)),
    between=st.booleans(),
)
def test_nothing_protected_ever_goes(
    *,
    versions: set[int],
    keep: int | None,
    older_than: int | None,
    floor: int,
    held: set[int],
    between: bool,
) -> None:
    existing = history(*sorted(versions))
    guard = protection(floor, *held)
    wanted = candidates(existing, policy(keep, older_than), NOW)
    gone, _ = removable(wanted, guard, between_pins=between)
    assert set(gone) <= versions - {max(versions)}
    assert all((v < floor or between) and v not in {floor, *held} for v in gone)
    assert list(gone) == sorted(gone)
    assert len(versions) - len(gone) >= min(len(versions), max(keep or 1, 1))
    if older_than is not None:
        assert all(v * 10.0 < NOW - older_than for v in gone)


@pytest.mark.parametrize("bad", [{}, {"keep": -1}, {"older_than": "-1s"}, {"keep": 3, "older_than": "-1s"}])
def test_a_policy_needs_a_sane_bound(bad: dict[str, object]) -> None:
    with pytest.raises(InvalidInput):
        build(CleanupRequest, bad)


@pytest.mark.parametrize(
    ("said", "good"),
    [
        ({"keep": 0}, policy(0)),
        ({"older_than": "0s"}, policy(older_than=0)),
        ({"keep": 1, "older_than": "1s"}, policy(1, 1)),
    ],
)
def test_one_bound_is_enough(said: dict[str, object], good: RetentionPolicy) -> None:
    assert build(CleanupRequest, said).policy == good


def test_children_go_before_their_parents() -> None:
    def branch(name: str, *lineage: str) -> BranchRef:
        identifier = tuple((n, u) for n, u in enumerate((*lineage, name)))
        return BranchRef(name=name, parent_branch=None, parent_version=1, identifier=identifier)

    named = [branch("a"), branch("b/c"), branch("a/b"), branch("a/b/c")]
    assert [ref.name for ref in removal_order(named)] == ["a/b/c", "a/b", "b/c", "a"]
    forked = [branch("a", "a/b"), branch("a/b")]
    assert [ref.name for ref in removal_order(forked)] == ["a", "a/b"], "whoever was made from another goes first"


def test_between_pins_takes_the_holes_and_nothing_that_is_held() -> None:
    assert removable((1, 2, 3, 4, 5), protection(2, 4), between_pins=True) == ((1, 3, 5), None)


def expire(versions: tuple[VersionFacts, ...], guard: Protection, **terms: int) -> tuple[int, ...]:
    """What one run of an expiry removes; `time_retained_secs` is 0 unless named."""
    expiry = SnapshotExpiry(**{"time_retained_secs": 0, **terms})
    wanted = candidates(versions, RetentionPolicy(expiry=expiry), NOW)
    return removable(wanted, guard, between_pins=False, expiry=expiry)[0]


TWENTY = history(*range(1, 21))
AT_HEAD = protection(20)


@pytest.mark.parametrize(
    ("terms", "gone"),
    [
        ({}, range(1, 11)),
        ({"retain_min": 15}, range(1, 6)),
        ({"retain_min": 1}, range(1, 11)),
        ({"retain_min": 1, "expire_limit": 100}, range(1, 20)),
        ({"retain_min": 20}, ()),
        ({"expire_limit": 3}, range(1, 4)),
        # committed at second 10 x version, now is 1000: younger than 940 seconds from version 6 on
        ({"time_retained_secs": 945}, range(1, 6)),
        ({"time_retained_secs": 940}, range(1, 6)),
        ({"time_retained_secs": 2000}, ()),
        # beyond the newest 15 they go whatever their age
        ({"time_retained_secs": 2000, "retain_max": 15}, range(1, 6)),
        ({"time_retained_secs": 945, "retain_max": 18}, range(1, 6)),
        ({"time_retained_secs": 2000, "retain_max": 15, "expire_limit": 2}, range(1, 3)),
    ],
)
def test_snapshot_expiry(terms: dict[str, int], gone: range) -> None:
    assert expire(TWENTY, AT_HEAD, **terms) == tuple(gone)


def test_an_expiry_takes_one_continuous_range() -> None:
    assert expire(TWENTY, protection(20, 4)) == (1, 2, 3)
    assert expire(TWENTY, protection(20, 1, 2, 6)) == (3, 4, 5)
    assert expire(history(3, *range(10, 30)), protection(29)) == tuple(range(10, 20)), "below a gap: out of scope"


def test_an_expiry_stops_at_the_lowest_pin() -> None:
    assert expire(TWENTY, protection(5)) == (1, 2, 3, 4)


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ({"expiry": {}, "keep": 3}, "never mixed"),
        ({"expiry": {}, "older_than": "3s"}, "never mixed"),
        ({"expiry": {"retain_min": 0}}, "retain_min"),
        ({"expiry": {"retain_min": 5, "retain_max": 4}}, "must not be below retain-min 5"),
        ({"expiry": {"expire_limit": 0}}, "expire_limit"),
        ({"expiry": {"time_retained": "-1s"}}, "time_retained"),
    ],
)
def test_an_expiry_is_never_mixed_and_keeps_something(bad: dict[str, object], words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        build(CleanupRequest, bad)
