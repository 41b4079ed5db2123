"""Which release writes a text index, what is built anew, and what is left to the engine."""

from __future__ import annotations

from dataclasses import replace

import pytest

from omnigraph_ops.graph.stamp3 import Stamp3
from omnigraph_ops.graph.stamp6 import Stamp6
from omnigraph_ops.graph.text_indexes import Analyser, TextIndex, analyser_of
from omnigraph_ops.lance.tables import FragmentFacts, IndexFacts, TableFacts
from omnigraph_ops.models import IndexBuild, IndexFold, PendingIndex
from omnigraph_ops.stages.optimize.text_plan import IndexWork, TextState, foreign_note, foreign_texts, with_texts

_COMMON = b'\n\x06simple\x12\t"English" ((\x010\x018\x01@\x01H\x03P\x03'
"""InvertedIndexDetails of the engine's default parameters, as pylance 8.0.1 writes them."""
ALL = frozenset({"8.0.1", "10.0.0"})
TEXT = IndexFacts(
    name="bio_idx", columns=("bio",), details="InvertedIndexDetails", segments=1, covered=frozenset({0, 1})
)
KEY = replace(TEXT, name="id_idx", columns=("id",), details="BTreeIndexDetails")
FACTS = TableFacts(
    version=3,
    rows=20,
    fragments=tuple(FragmentFacts(fragment_id=n, physical_rows=10, deleted_rows=0, data_bytes=9) for n in range(2)),
    indexes=(TEXT, KEY),
    compaction_tasks=(),
    auto_cleanup_keys=(),
)
FOLD = IndexFold(name="bio_idx", columns=("bio",), segments=1, uncovered_fragments=1)
KEY_FOLD = replace(FOLD, name="id_idx", columns=("id",))
BUILD = IndexBuild(column="bio", index_type="INVERTED", name="bio_idx")
NOTHING = IndexWork(folds=(), builds=(), pending=())
BEHIND = replace(NOTHING, folds=(FOLD, KEY_FOLD))


def state(stamp: int | None, *analysers: Analyser, certified: bool = False, **fields: object) -> TextState:
    writer = {3: Stamp3.text_writer, 6: Stamp6.text_writer, None: None}[stamp]
    index = TextIndex(analysers=frozenset(analysers), certified=certified)
    return replace(TextState(writer=writer, indexes={"bio_idx": index}, installed=ALL), **fields)


@pytest.mark.parametrize(
    ("details", "analyser"),
    [
        (b"", Analyser.LANCE_8),
        (_COMMON, Analyser.LANCE_8),
        (_COMMON + b"`\x80\x01", Analyser.LANCE_10),
        (_COMMON + b"`\x80\x01x\x02", Analyser.LANCE_11),
    ],
    ids=["no details", "8.0.1", "9.0.0 and 10.0.0", "11.0.0 and 13.0.0"],
)
def test_the_details_of_a_segment_tell_its_analyser(details: bytes, analyser: Analyser) -> None:
    assert analyser_of(details) is analyser


@pytest.mark.parametrize(
    ("stamp", "analyser", "release", "rebuild", "foreign"),
    [
        (3, Analyser.LANCE_8, "8.0.1", True, False),
        (3, Analyser.LANCE_10, "8.0.1", True, True),
        (3, Analyser.LANCE_11, "8.0.1", True, True),
        (6, Analyser.LANCE_8, "10.0.0", False, False),
        (6, Analyser.LANCE_10, "10.0.0", False, False),
        (6, Analyser.LANCE_11, "10.0.0", True, True),
        (None, Analyser.LANCE_8, "8.0.1", False, False),
        (None, Analyser.LANCE_10, "10.0.0", False, False),
        (None, Analyser.LANCE_11, None, False, False),
    ],
)
def test_a_lagging_index_is_written_by_the_release_of_its_readers(
    stamp: int | None, analyser: Analyser, release: str | None, rebuild: bool, foreign: bool
) -> None:
    seen = state(stamp, analyser)
    text, key = with_texts(BEHIND, FACTS, seen).folds
    assert (text.release, text.rebuild, bool(text.why)) == (release, rebuild, foreign)
    assert key == KEY_FOLD
    assert foreign_texts(FACTS, seen) == (("bio_idx",) if foreign else ())


@pytest.mark.parametrize("stamp", [3, 6])
def test_a_covered_index_is_left_alone_unless_its_words_are_foreign(stamp: int) -> None:
    own = {3: Analyser.LANCE_8, 6: Analyser.LANCE_10}[stamp]
    assert with_texts(NOTHING, FACTS, state(stamp, own)) == NOTHING
    (fold,) = with_texts(NOTHING, FACTS, state(stamp, own, Analyser.LANCE_11)).folds
    assert (fold.name, fold.rebuild, fold.why) == ("bio_idx", True, "bio_idx has words of Lance 11 or newer")
    assert "not found until optimize builds it anew" in str(foreign_note(FACTS, state(stamp, Analyser.LANCE_11)))
    assert foreign_note(FACTS, state(stamp, own)) is None


@pytest.mark.parametrize("stamp", [3, 6])
def test_a_missing_index_is_built_by_that_release_or_waits(stamp: int) -> None:
    wanted = replace(NOTHING, builds=(replace(BUILD, column="id", index_type="BTREE", name="id_idx"), BUILD))
    release = {3: "8.0.1", 6: "10.0.0"}[stamp]
    done = with_texts(wanted, FACTS, state(stamp, Analyser.LANCE_8))
    assert [b.release for b in done.builds] == [None, release]
    waits = with_texts(wanted, FACTS, state(stamp, Analyser.LANCE_8, installed=frozenset()))
    assert ([b.column for b in waits.builds], [p.column for p in waits.pending]) == (["id"], ["bio"])


def test_without_the_installation_the_reason_names_the_command_and_on_stamp_3_the_cure() -> None:
    reasons = {}
    for stamp in (3, 6):
        work = with_texts(BEHIND, FACTS, state(stamp, Analyser.LANCE_8, installed=frozenset({"elsewhere"})))
        assert work.folds == (KEY_FOLD,)
        (pending,) = work.pending
        reasons[stamp] = pending.reason
    assert all("`omnigraph-ops install-text-indexer`" in reason for reason in reasons.values())
    assert ["must have the same length" in reasons[stamp] for stamp in (3, 6)] == [True, False]


def test_an_engine_that_certifies_keeps_its_indexes() -> None:
    for seen in (
        state(6, Analyser.LANCE_11, certified=True),
        state(6, Analyser.LANCE_11, certified_by="nodes/x was written by lance 11.0.0"),
        state(None, Analyser.LANCE_11, certified=True),
    ):
        work = with_texts(BEHIND, FACTS, seen)
        assert (work.folds, [p.column for p in work.pending]) == ((KEY_FOLD,), ["bio"])
        assert "omnigraph rebuild-full-text-indexes" in work.pending[0].reason
        assert foreign_texts(FACTS, seen) == ()
        assert with_texts(NOTHING, FACTS, seen) == NOTHING


def test_plain_lance_with_words_of_several_releases_is_left_to_its_owner() -> None:
    work = with_texts(BEHIND, FACTS, state(None, Analyser.LANCE_10, Analyser.LANCE_11))
    assert (work.folds, len(work.pending)) == ((KEY_FOLD,), 1)


def test_tables_without_text_or_rows_are_left_as_planned() -> None:
    kept = replace(BEHIND, pending=(PendingIndex(column="v", reason="no vectors"),))
    assert with_texts(kept, FACTS, None) is kept
    assert with_texts(kept, replace(FACTS, rows=0), state(3, Analyser.LANCE_11)) is kept
