"""A plan is applied only as it was made, in time, and to its own graph."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from omnigraph_ops import serde
from omnigraph_ops.coordination import sealed
from omnigraph_ops.coordination.state import PLANS_DIR
from omnigraph_ops.errors import InvalidInput, StalePlan
from omnigraph_ops.graph.layout import now_us
from omnigraph_ops.models.cleanup import CleanupPlan, RetentionPolicy
from omnigraph_ops.models.repair import RepairPreview
from omnigraph_ops.storage.store import Storage

HOUR_US = 3_600_000_000


def plan(expires_in_us: int = HOUR_US, keep: int = 2) -> CleanupPlan:
    return sealed.seal(
        CleanupPlan(
            uri="/g",
            stamp=6,
            policy=RetentionPolicy(keep_versions=keep),
            planned_at_us=1,
            expires_at_us=now_us() + expires_in_us,
            tables=(),
            orphaned_forks=(),
            digest="",
        )
    )


def verify(value: CleanupPlan, uri: str = "/g") -> None:
    sealed.verify(value, uri=uri, consequence="nothing was deleted")


def test_a_plan_as_it_was_made_is_accepted() -> None:
    verify(plan())


@pytest.mark.parametrize(
    ("value", "uri", "words"),
    [
        (replace(plan(), policy=RetentionPolicy(keep_versions=1)), "/g", "altered"),
        (replace(plan(), expires_at_us=now_us() + 9 * HOUR_US), "/g", "altered"),
        (replace(plan(), digest=""), "/g", "altered"),
        (plan(), "/other", "is for /g, not /other"),
    ],
)
def test_anything_else_is_refused(value: CleanupPlan, uri: str, words: str) -> None:
    with pytest.raises(StalePlan, match=f"{words}.*nothing was deleted"):
        verify(value, uri)


def test_a_plan_that_is_applied_in_parts_is_digested_once(monkeypatch: pytest.MonkeyPatch) -> None:
    value, digest, asked = plan(), serde.digest, list[object]()
    monkeypatch.setattr(serde, "digest", lambda of: asked.append(of) or digest(of))
    for _ in range(3):
        verify(value)
    assert len(asked) == 1
    with pytest.raises(StalePlan, match="altered"):
        verify(replace(value, policy=RetentionPolicy(keep_versions=1)))


def test_a_late_plan_is_refused() -> None:
    with pytest.raises(StalePlan, match=r"expired 1 h ago; nothing was deleted; plan again"):
        verify(plan(-HOUR_US))


def test_a_kept_plan_comes_back_by_its_digest(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    kept = plan()
    ref = sealed.store(storage, kept)
    assert storage.exists(ref.path)
    assert (ref.uri, ref.digest, ref.expires_at_us) == (kept.uri, kept.digest, kept.expires_at_us)
    assert sealed.load(storage, CleanupPlan, kept.digest) == kept


def test_a_kept_plan_that_is_gone_or_damaged_or_another_is_refused(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    kept, other = plan(), plan(keep=5)
    with pytest.raises(StalePlan, match="no longer kept"):
        sealed.load(storage, CleanupPlan, kept.digest)
    storage.write(sealed.plan_path(kept.digest), b"{}")
    with pytest.raises(StalePlan, match="damaged"):
        sealed.load(storage, CleanupPlan, kept.digest)
    sealed.store(storage, other)
    storage.write(sealed.plan_path(kept.digest), storage.read(sealed.plan_path(other.digest)))
    with pytest.raises(StalePlan, match="another plan"):
        sealed.load(storage, CleanupPlan, kept.digest)


def test_a_plan_of_another_stage_is_not_called_damaged(tmp_path: Path) -> None:
    storage, kept = Storage(str(tmp_path)), plan()
    sealed.store(storage, kept)
    with pytest.raises(StalePlan, match=r"is no plan of this stage, or another release made it .*nothing was done"):
        sealed.load(storage, RepairPreview, kept.digest)
    for content in (b"[]", b"{}", b"\xff", storage.read(sealed.plan_path(kept.digest)).replace(b'"/g"', b'"/h"')):
        storage.write(sealed.plan_path(kept.digest), content)
        with pytest.raises(StalePlan, match="is damaged"):
            sealed.load(storage, RepairPreview, kept.digest)


@pytest.mark.parametrize("text", ["", "sha256:", "sha256:../../x", "sha256:" + "g" * 64])
def test_only_a_digest_names_a_plan(text: str) -> None:
    with pytest.raises(InvalidInput):
        sealed.plan_path(text)


def test_long_expired_plans_are_dropped_and_damaged_ones_stay(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    old, recent = plan(-8 * 24 * HOUR_US), plan(-HOUR_US)
    for value in (old, recent):
        sealed.store(storage, value)
    storage.write(f"{PLANS_DIR}/odd.json", b"?")
    sealed.store(storage, plan(keep=7))
    names = storage.list(PLANS_DIR)
    assert Path(sealed.plan_path(old.digest)).name not in names
    assert {Path(sealed.plan_path(recent.digest)).name, "odd.json"} <= set(names)
