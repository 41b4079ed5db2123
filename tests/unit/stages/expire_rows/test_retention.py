"""Row policies as written, the predicates and queries they become, and what the engine's answers mean."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from omnigraph_ops import serde
from omnigraph_ops.cli.options import request_of
from omnigraph_ops.coordination import sealed
from omnigraph_ops.engine import (
    EngineCli,
    EngineConflict,
    EngineFailure,
    EngineRecovery,
    EngineRelease,
    EngineRowConflict,
    classify,
    release_of,
    require_stamp,
)
from omnigraph_ops.errors import InvalidInput, OpsError, StalePlan, UnsupportedStamp
from omnigraph_ops.graph.schema import Property, TableSpec, TypeFacts
from omnigraph_ops.lance.rows import Clock
from omnigraph_ops.models.rows import (
    EdgeRows,
    EpochUnit,
    RowPolicy,
    RowRetentionPlan,
    RowRetentionReport,
    TableRowPlan,
    TableRowStats,
)
from omnigraph_ops.requests import build
from omnigraph_ops.stages.expire_rows.plan import over_bounds
from omnigraph_ops.stages.expire_rows.stage import ExpireRows, ExpireRowsRequest
from omnigraph_ops.stages.expire_rows.statements import (
    BYTES_PER_LOAD,
    KEYS_PER_QUERY,
    ROWS_PER_LOAD,
    Load,
    Query,
    Way,
    deletion_of,
)
from omnigraph_ops.views import markdown
from omnigraph_ops.views.view import plain_text

OLD, NEW = EngineRelease(version=(0, 7, 2), stamp=3), EngineRelease(version=(0, 9, 0), stamp=6)
EVENTS = RowPolicy(table_key="node:Event", property="happened_at", older_than_secs=90 * 86_400)


def prop(name: str, scalar: str, *, is_list: bool = False, is_enum: bool = False) -> Property:
    return Property(name=name, property_id=name, scalar=scalar, is_list=is_list, is_enum=is_enum)


NODE = TableSpec(
    table_key="node:Event",
    path=None,
    properties=(
        *(prop("name", "String"), prop("happened_at", "DateTime"), prop("at_ms", "I64"), prop("note", "String")),
        prop("days", "Date", is_list=True),
    ),
    indexed=(),
)
EDGE = TableSpec(
    table_key="edge:At",
    path=None,
    properties=(prop("since", "Date"), prop("at_s", "I64"), prop("to", "I64")),
    indexed=(),
)
KEYED = TypeFacts(name="Event", key=("name",), plain_strings=("note",), blanks={"vec": [1, 1]})
UNMARKED = replace(KEYED, plain_strings=())


def named(*keys: str) -> pa.Table:
    return pa.table({"name": keys})


def policies(entries: list[dict[str, object]]) -> tuple[RowPolicy, ...]:
    """The policies of a request."""
    return build(ExpireRowsRequest, {"policies": entries}).row_policies


class TestPolicies:
    def test_an_entry_is_a_policy(self) -> None:
        entries: list[dict[str, object]] = [{"table": "node:Event", "property": "happened_at", "older_than": "90d"}]
        assert policies(entries) == (EVENTS,)

    def test_the_order_in_the_file_does_not_matter(self) -> None:
        entries = [
            {"table": "node:B", "property": "at", "older_than": "1h", "unit": "ms"},
            {"table": "node:A", "property": "at", "older_than": "2w"},
        ]
        first, second = policies(entries)
        assert (first.table_key, first.older_than_secs, first.unit) == ("node:A", 14 * 86_400, None)
        assert (second.table_key, second.unit) == ("node:B", EpochUnit.MS)

    @pytest.mark.parametrize(
        ("entry", "words"),
        [
            ({"older_than": "0s"}, "more than zero"),
            ({"older_than": "90y"}, "unknown duration unit"),
            ({"older_than": "90"}, "has no unit: write 90d for days"),
            ({"older_than": 90}, "has no unit: write 90d for days"),
            ({"unit": "us"}, "unit"),
            ({"table": ""}, "table"),
            ({"keep": 3}, "keep"),
        ],
    )
    def test_a_bad_field_is_named(self, entry: dict[str, object], words: str) -> None:
        good = {"table": "node:Event", "property": "at", "older_than": "90d"}
        with pytest.raises(InvalidInput, match=words):
            policies([{**good, **entry}])

    def test_no_policy_and_two_for_one_table_are_refused(self) -> None:
        entry = {"table": "node:Event", "property": "at", "older_than": "90d"}
        with pytest.raises(InvalidInput, match=r"no policy, .* the field policies \(--policies FILE\), or"):
            policies([])
        with pytest.raises(InvalidInput, match="node:Event has more than one policy"):
            policies([entry, {**entry, "property": "seen_at"}])

    @pytest.mark.parametrize("text", ["rows:\n- {entry}\n", "[{entry}]", '{{"rows": [{entry}]}}'])
    def test_a_file_is_yaml_or_json(self, tmp_path: Path, text: str) -> None:
        entry = json.dumps({"table": "node:Event", "property": "happened_at", "older_than": "90d"})
        path = tmp_path / "rows"
        path.write_text(text.format(entry=entry))
        assert request_of(ExpireRowsRequest, {"policies": str(path)}).row_policies == (EVENTS,)

    def test_a_file_that_is_none_is_one_sentence(self, tmp_path: Path) -> None:
        def read(name: str) -> ExpireRowsRequest:
            return request_of(ExpireRowsRequest, {"policies": str(tmp_path / name)})

        with pytest.raises(OpsError, match="cannot read"):
            read("none")
        (tmp_path / "bad").write_text("{[")
        with pytest.raises(OpsError, match="neither YAML nor JSON"):
            read("bad")
        (tmp_path / "word").write_text("word")
        with pytest.raises(OpsError, match="--policies"):
            read("word")

    @pytest.mark.parametrize(
        ("text", "sentence"),
        [
            ("{}", "--policies: is not a list"),
            ("[7]", "--policies: entry 1: 7 is not a mapping of fields to values"),
            ("[{good}, {{}}]", "--policies: entry 2: table: is missing"),
            ('[{good}, {{"table": 1}}]', "--policies: entry 2: table: 1 is not a text"),
            ('[{{"keep": 3, "table": "node:A", "property": "at", "older_than": "1d"}}]', "entry 1: keep: is unknown"),
        ],
    )
    def test_what_is_wrong_in_a_file_is_said_of_its_entry(self, tmp_path: Path, text: str, sentence: str) -> None:
        good = json.dumps({"table": "node:Event", "property": "at", "older_than": "90d"})
        path = tmp_path / "policies.json"
        path.write_text(text if text == "{}" else text.format(good=good))
        with pytest.raises(OpsError, match=re.escape(sentence)):
            request_of(ExpireRowsRequest, {"policies": str(path)})

    def test_what_is_wrong_in_an_option_is_said_of_the_option(self) -> None:
        with pytest.raises(OpsError, match=re.escape("--property: is missing")):
            request_of(ExpireRowsRequest, {"table": "node:Event"})

    @pytest.mark.parametrize("bounds", [{"max_share": 0}, {"max_share": 1.5}, {"max_rows": 0}])
    def test_bounds_must_make_sense(self, bounds: dict[str, float]) -> None:
        entry = {"table": "node:Event", "property": "at", "older_than": "90d"}
        with pytest.raises(InvalidInput, match=next(iter(bounds))):
            build(ExpireRowsRequest, {"policies": [entry], **bounds})

    def test_each_bound_counts_by_itself(self) -> None:
        assert over_bounds(50, 100, max_rows=50, max_share=0.5) is None
        assert over_bounds(51, 100, max_rows=60, max_share=0.5) == (
            "51 of 100 rows (51%) below the cut and at most 50% may go (--max-share)"
        )
        over = over_bounds(11, 100, max_rows=10, max_share=0.5)
        assert over == "11 rows below the cut and at most 10 may go (--max-rows)"


class TestCut:
    @pytest.mark.parametrize(("nanoseconds", "cut"), [(1_000, 1_999_999), (1_000_000, 1_999), (1_000_000_000, 1)])
    def test_it_is_rounded_down_to_what_the_column_can_say(self, nanoseconds: int, cut: int) -> None:
        assert Clock(column="at", nanoseconds=nanoseconds, sql_type=None).cut_before(1_999_999) == cut

    def test_a_day_is_older_only_when_all_of_it_is(self) -> None:
        day = 86_400 * 1_000_000
        clock = Clock(column="day", nanoseconds=day * 1000, sql_type="Date32")
        assert clock.cut_before(20 * day - 1) == 19
        assert clock.cut_before(20 * day) == 20
        assert clock.below(20) == "(`day` < arrow_cast(20, 'Date32')) IS TRUE"


class TestStatements:
    def test_an_integer_is_compared_by_the_engine(self) -> None:
        deletion = deletion_of(NODE, KEYED, "at_ms", has_edges=True, release=OLD)
        assert deletion.columns == ()
        (query,) = deletion.steps(1_700, named("e1"), "mark")
        assert query == Query(text="query expire() { delete Event where at_ms < 1700 }")

    @pytest.mark.parametrize("release", [OLD, NEW, None])
    def test_a_date_is_not_so_rows_are_marked_and_deleted_at_once(self, release: EngineRelease | None) -> None:
        deletion = deletion_of(NODE, KEYED, "happened_at", has_edges=True, release=release)
        assert deletion.columns == ("id", "name")
        rows = pa.table({"id": ["e1", 'e"2'], "name": ["e1", 'e"2']})
        load, delete = deletion.steps(0, rows, "mark-1")
        assert isinstance(load, Load)
        assert [json.loads(line) for line in load.lines] == [
            {"type": "Event", "data": {"id": key, "name": key, "note": "mark-1", "vec": [1, 1]}}
            for key in ("e1", 'e"2')
        ]
        assert delete == Query(text='query expire() { delete Event where note = "mark-1" }')

    def test_edges_are_told_by_their_id_and_their_ends(self) -> None:
        facts = TypeFacts(name="At", plain_strings=("from", "why"), judged=("since",))
        deletion = deletion_of(EDGE, facts, "since", has_edges=False, release=OLD)
        assert deletion.columns == ("id", "src", "dst", "since")
        row = {"id": ["01"], "src": ["e1"], "dst": ["c1"], "since": ["2026-01-02"]}
        load, delete = deletion.steps(0, pa.table(row), "m")
        assert isinstance(load, Load)
        assert delete == Query(text='query expire() { delete At where why = "m" }')
        data = {"id": "01", "since": "2026-01-02", "why": "m"}
        assert json.loads(load.lines[0]) == {"edge": "At", "from": "e1", "to": "c1", "data": data}

    def test_what_a_constraint_judges_keeps_its_value(self) -> None:
        facts = replace(KEYED, judged=("since", "n"))
        deletion = deletion_of(NODE, facts, "happened_at", has_edges=True, release=NEW)
        assert deletion.columns == ("id", "name", "since", "n")
        rows = pa.table({"name": ["e1"], "since": ["2026-01-02T03:00:00Z"], "n": [3]})
        load, _ = deletion.steps(0, rows, "m")
        assert isinstance(load, Load)
        data = {"name": "e1", "since": "2026-01-02T03:00:00Z", "n": 3, "note": "m", "vec": [1, 1]}
        assert json.loads(load.lines[0])["data"] == data

    def test_a_load_is_bounded_in_rows_and_in_bytes(self) -> None:
        deletion = deletion_of(NODE, KEYED, "happened_at", has_edges=True, release=NEW)
        rows = named(*(f"e{n}" for n in range(ROWS_PER_LOAD + 1)))
        assert [s.rows for s in deletion.steps(0, rows, "m")] == [ROWS_PER_LOAD, 1, 0]
        wide = replace(deletion, facts=replace(KEYED, blanks={"vec": [1] * (BYTES_PER_LOAD // 6)}))
        assert [s.rows for s in wide.steps(0, named("e1", "e2", "e3"), "m")] == [2, 1, 0]
        null = replace(deletion, facts=replace(KEYED, vector_bytes=BYTES_PER_LOAD // 2))
        assert [s.rows for s in null.steps(0, named("e1", "e2", "e3"), "m")] == [2, 1, 0]

    @pytest.mark.parametrize("unfit", [{"plain_strings": ()}, {"required_blobs": ("scan",)}])
    def test_where_no_row_can_be_marked_each_is_named_by_its_key(self, unfit: dict[str, tuple[str, ...]]) -> None:
        deletion = deletion_of(NODE, replace(KEYED, **unfit), "happened_at", has_edges=True, release=NEW)
        (query,) = deletion.steps(1_700, named("e1", 'e"2'), "mark")
        assert isinstance(query, Query)
        assert query.text == (
            "query expire($k0: String, $k1: String) {\n"
            "  delete Event where name = $k0\n  delete Event where name = $k1\n}"
        )
        assert query.params == {"k0": "e1", "k1": 'e"2'}

    def test_many_keys_are_many_queries(self) -> None:
        deletion = deletion_of(NODE, replace(KEYED, plain_strings=()), "happened_at", has_edges=False, release=OLD)
        rows = named(*(str(n) for n in range(KEYS_PER_QUERY + 1)))
        assert [q.rows for q in deletion.steps(0, rows, "mark")] == [KEYS_PER_QUERY, 1]

    def test_a_key_that_072_does_not_load_is_marked_by_updates_beside_edges(self) -> None:
        facts, rows = replace(KEYED, key=("at_ms",)), pa.table({"at_ms": [7]})
        alone = deletion_of(NODE, facts, "happened_at", has_edges=False, release=OLD)
        assert (alone.way, alone.columns) == (Way.KEYS, ("at_ms",))
        update, delete = deletion_of(NODE, facts, "happened_at", has_edges=True, release=OLD).steps(0, rows, "m")
        assert update == Query(
            text='query expire($k0: I64) {\n  update Event set { note: "m" } where at_ms = $k0\n}',
            params={"k0": 7},
            rows=1,
        )
        assert delete == Query(text='query expire() { delete Event where note = "m" }')
        assert deletion_of(NODE, facts, "happened_at", has_edges=True, release=NEW).way is Way.MARK

    @pytest.mark.parametrize("key", [(), ("name", "note"), ("at_ms", "name"), ("happened_at",)])
    def test_a_mark_needs_no_single_key(self, key: tuple[str, ...]) -> None:
        facts = replace(KEYED, key=key)
        assert deletion_of(NODE, facts, "happened_at", has_edges=True, release=NEW).columns == ("id", *key)

    @pytest.mark.parametrize(
        ("spec", "facts", "property_name", "release", "words"),
        [
            (NODE, KEYED, "missing", NEW, "its dates, times and integers are at_ms, happened_at; nothing"),
            (NODE, KEYED, "days", NEW, "no single-valued property 'days'"),
            (NODE, replace(UNMARKED, key=()), "happened_at", NEW, "by a mark or by a @key of one String or integer"),
            (NODE, replace(UNMARKED, key=("name", "note")), "happened_at", None, "no plain String property for a mark"),
            (NODE, replace(KEYED, key=("happened_at",)), "happened_at", OLD, "loads do not take the key"),
            (NODE, replace(KEYED, key=("at_ms", "name")), "happened_at", OLD, "loads do not take the key"),
            (
                NODE,
                UNMARKED,
                "happened_at",
                OLD,
                r"only by a mark, with omnigraph 0\.7\.2; this type has no plain String",
            ),
            (NODE, replace(KEYED, required_blobs=("scan",)), "happened_at", OLD, "Blob 'scan' is required"),
            (EDGE, TypeFacts(name="At"), "since", NEW, "edges only by a mark; this type has no plain String property"),
            (EDGE, TypeFacts(name="At", plain_strings=("to",)), "since", NEW, "has no plain String property"),
            (EDGE, TypeFacts(name="At"), "to", NEW, "`to` is an endpoint"),
        ],
    )
    def test_what_the_language_cannot_say_is_refused(
        self, spec: TableSpec, facts: TypeFacts, property_name: str, release: EngineRelease | None, words: str
    ) -> None:
        with pytest.raises(InvalidInput, match=words):
            deletion_of(spec, facts, property_name, has_edges=True, release=release)

    def test_edges_expire_by_an_integer(self) -> None:
        assert deletion_of(EDGE, TypeFacts(name="At"), "at_s", has_edges=False, release=OLD).way is Way.CUT


class TestEngine:
    @pytest.mark.parametrize(
        ("said", "stamp"),
        [("omnigraph 0.6.2", 3), ("omnigraph 0.7.2\n", 3), ("omnigraph 0.9.0", 6), ("omnigraph 0.10.1", 6)],
    )
    def test_releases_write_their_generation(self, said: str, stamp: int) -> None:
        assert release_of(said, "engine").stamp == stamp

    @pytest.mark.parametrize("said", ["omnigraph 0.8.0", "omnigraph 0.6.1", "omnigraph 1.0.0", "hello", ""])
    def test_unknown_releases_are_refused(self, said: str) -> None:
        with pytest.raises(InvalidInput, match="known are the releases"):
            release_of(said, "engine")

    def test_the_wrong_release_is_refused(self) -> None:
        engine = EngineCli(path="engine", release=OLD, timeout_seconds=1, environment={})
        require_stamp(engine, 3, "graph")
        with pytest.raises(UnsupportedStamp, match=r"0\.7\.2, which writes stamp 3; graph is of stamp 6"):
            require_stamp(engine, 6, "graph")

    @pytest.mark.parametrize(
        ("text", "kind"),
        [
            ("stale view of 'node:A': expected manifest table version 1 but current is 2", EngineConflict),
            ("write authority 'graph_head:main' changed during preparation (expected a, current b)", EngineConflict),
            ("storage: Too many concurrent writers", EngineConflict),
            ("retryable storage commit conflict: x", EngineConflict),
            ("storage: Concurrent modification: table version 6 already exists for edge:At", EngineConflict),
            ("table 'node:A' has Lance HEAD version 16 ahead of manifest version 15", EngineConflict),
            ("merge conflicts: [MergeConflict { kind: DeleteVsUpdate }]", EngineRowConflict),
            ("recovery required for operation 01J: x", EngineRecovery),
            ("recovery required for operation 01J: write authority 'a' changed during preparation", EngineRecovery),
            ("write is unavailable while schema apply is in progress", EngineRecovery),
            ("policy: denied", EngineFailure),
        ],
    )
    def test_its_errors_say_what_may_be_done(self, text: str, kind: type[EngineFailure]) -> None:
        assert classify(text) is kind


VIEW = ExpireRows().view


def planned(**fields: object) -> RowRetentionPlan:
    table = TableRowPlan(
        policy=EVENTS,
        table_key="node:Event",
        cut=1_700_000_000_000,
        cut_at_us=1_700_000_000_000_000,
        manifest_version=4,
        rows=200,
        expired=20,
        max_rows=20,
        oldest_us=1_600_000_000_000_000,
        newest_us=1_690_000_000_000_000,
        sample=("e1", "<b>"),
        edges=(EdgeRows(table_key="edge:At", rows=30),),
    )
    plan = RowRetentionPlan(
        uri="/graph",
        stamp=6,
        branch=None,
        planned_at_us=1,
        expires_at_us=2**62,
        max_share=0.5,
        tables=(replace(table, **fields),),  # type: ignore[arg-type]
        digest="",
    )
    return sealed.seal(plan)


class TestPlan:
    def test_it_survives_json_and_refuses_a_change(self) -> None:
        plan = serde.from_json(RowRetentionPlan, serde.dumps(planned()))
        sealed.verify(plan, uri="/graph", consequence="nothing was deleted")
        with pytest.raises(StalePlan, match="altered"):
            sealed.verify(replace(plan, max_share=1.0), uri="/graph", consequence="nothing was deleted")

    def test_a_refused_table_counts_for_nothing(self) -> None:
        plan = planned(refused="too many")
        assert (plan.total_rows, plan.total_edges) == (0, 0)
        assert "refused: too many" in plain_text(VIEW(plan))

    def test_the_text_names_cut_share_ends_keys_and_edges(self) -> None:
        text = " ".join(plain_text(VIEW(planned())).split())
        expected = ("20 200 10.0%", "2023-11-14 22:13:20 UTC", "2020-09-13", "e1", "node:Event edge:At 30", "sha256:")
        assert [words for words in expected if words not in text] == []

    def test_an_approval_shows_the_same_and_trusts_no_key(self) -> None:
        plan = planned()
        asked = ExpireRows().question(plan)
        body = markdown.body(VIEW(plan), asked, digest=plan.digest, answer_by="noon", full_plan="the log")
        expected = ("20 rows", "30 edges", "| 20 | 200 | 10.0% |", "\\<b\\>", "by noon", "still stored", plan.digest)
        assert [words for words in expected if words not in body] == []

    def test_a_report_says_how_the_bytes_come_back(self) -> None:
        done = TableRowStats(
            table_key="node:Event", rows_removed=20, edges=planned().tables[0].edges, attempts=2, rows_left=3
        )
        report = RowRetentionReport(uri="/graph", branch=None, digest="", tables=(done,))
        assert (report.rows_removed, report.edges_removed) == (20, 30)
        text = " ".join(plain_text(VIEW(report)).split())
        expected = ("20 rows and 30 edges deleted", "Attempts", "edge:At 30 2 3 rows", "--purge-deleted", "cleanup")
        assert [words for words in expected if words not in text] == []
