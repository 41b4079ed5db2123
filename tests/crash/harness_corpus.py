"""The corpus of damaged graphs: what is broken, and what the answer must name."""

from __future__ import annotations

import pyarrow as pa

from tests.crash import harness_damage as d
from tests.crash import harness_damage_rows as r
from tests.crash.harness_damage import DEEP, GRAPH, HARMLESS, TABLE, Case

IR, STATE, SOURCE = "_schema.ir.json", "__schema_state.json", "_schema.pg"
SIDECAR = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
PERSON = "node:Person"
WRITES = ("optimize",)


def corpus() -> tuple[Case, ...]:
    """Every case, names unique."""
    return (*_manifest_files(), *_stamps(), *_contract(), *_signed_lies(), *_rows(), *_tables(), *_recovery(), *_own())


def _manifest_files() -> list[Case]:
    def case(name: str, damage: d.Damage, **more: object) -> Case:
        return Case(name=f"manifest {name}", damage=damage, names="manifest", **more)  # type: ignore[arg-type]

    newest = lambda root: d.newest(root / "__manifest")  # noqa: E731
    folder = lambda root: root / "__manifest"  # noqa: E731
    hint = "__manifest/_versions/latest_version_hint.json"
    ref, needs_branches = "__manifest/_refs/branches/lazy-1.json", ("check", "cleanup", "optimize")
    return [
        case("version truncated", d.on(newest, d.halve)),
        case("version empty", d.on(newest, d.empty)),
        case("version garbage", d.on(newest, d.scramble)),
        case("version footer points nowhere", d.on(newest, d.flip_footer)),
        case("version absurd", d.put(f"__manifest/_versions/{0:020d}.manifest", b"x" * 64)),
        case("version folder missing", d.on(lambda root: root / "__manifest" / "_versions", d.remove)),
        case("data missing", d.on(lambda root: root / "__manifest" / "data", d.remove)),
        case("data truncated", d.on(folder, d.each("data", d.halve))),
        case("data garbage", d.on(folder, d.each("data", d.scramble))),
        case("data empty", d.on(folder, d.each("data", d.empty))),
        case("is a file", d.file_at("__manifest")),
        case("is missing", d.on(folder, d.remove)),
        case("is an empty folder", lambda root: (d.remove(root / "__manifest"), (root / "__manifest").mkdir())),
        case("hint garbage", d.put(hint, "{"), scope=HARMLESS, must_fail=()),
        case("hint absurd", d.put(hint, '{"version": 1e99}'), scope=HARMLESS, must_fail=()),
        case("hint ahead", d.put(hint, '{"version": 9000}'), scope=HARMLESS, must_fail=()),
        case("branch ref garbage", d.put(ref, "{"), must_fail=needs_branches),
        case("branch ref wrong types", d.put(ref, '{"parentVersion":"x"}'), must_fail=needs_branches),
    ]


def _stamps() -> list[Case]:
    values = ("1", "2", "4", "5", "7", "99999999999999999999999", "-3", "3.0", "six", "", "\u0663")
    return [Case(name=f"stamp {v!r}", damage=d.stamp(v), names="stamp") for v in values]


def _contract() -> list[Case]:
    hostile: dict[str, bytes | str | None] = {
        "missing": None,
        "empty": b"",
        "deeply nested": DEEP,
        "deep object": '{"a":' * 100_000,
        "a list": "[]",
        "null": "null",
        "a number": "1" + "0" * 5000,
        "NaN": '{"ir_version": NaN, "format_version": NaN}',
        "BOM": b"\xef\xbb\xbf{}",
        "not UTF-8": b"\xff\xfe{\x00}\x00",
        "lone surrogate": '{"a": "\\ud800"}',
    }
    cases = [
        Case(name=f"{path} {name}", damage=d.put(path, raw), names=path)
        for path in (IR, STATE)
        for name, raw in hostile.items()
    ]
    cases += [
        Case(name=f"{path} version {value!r}", damage=d.edit_json(path, **{key: value}), names=path)
        for path, key in ((STATE, "format_version"), (IR, "ir_version"))
        for value in (True, "2", 2.0, None, 10**400)
    ]
    cases += [Case(name=f"{p} is a folder", damage=d.folder_at(p), names=p) for p in (IR, STATE, SOURCE)]
    cases += [
        Case(name=f"{SOURCE} missing", damage=d.put(SOURCE, None), names=SOURCE),
        Case(name=f"{SOURCE} not UTF-8", damage=d.put(SOURCE, b"\xff\xff"), names=SOURCE),
        Case(name=f"{IR} is a loop", damage=d.loop(IR), names=IR),
        Case(name="hash is a number", damage=d.edit_json(STATE, schema_ir_hash=5), names=STATE),
        Case(name="hash differs", damage=d.edit_json(IR, extra=1), names=IR),
    ]
    return cases


def _signed_lies() -> list[Case]:
    changes: dict[str, dict[str, object]] = {
        "nodes an object": {"nodes": {"a": 1}},
        "nodes null": {"nodes": None},
        "nodes missing names": {"nodes": [{}]},
        "nodes of text": {"nodes": ["Person"]},
        "edges a number": {"edges": 5},
    }
    cases = [
        Case(name=f"signed {name}", damage=d.consistent_ir(lambda ir, c=c: ir.update(c)), names=IR)
        for name, c in changes.items()
    ]
    for key in ("properties", "constraints"):
        for value in (None, 5, "x", [None], [{}], [5]):
            damage = d.consistent_ir(lambda ir, k=key, v=value: ir["nodes"][0].update({k: v}))
            cases.append(Case(name=f"signed {key} {value!r}", damage=damage, names=IR))
    for value in (None, "abc", -1, 0, 10**40, [1], float("nan")):
        damage = d.consistent_ir(lambda ir, v=value: ir["nodes"][0].update(type_id=v))
        names = "schema" if isinstance(value, int) else IR
        cases.append(Case(name=f"signed type_id {value!r}", damage=damage, names=names, stamps=(6,), must_fail=()))
    return cases


def _rows() -> list[Case]:
    def case(name: str, damage: d.Damage, **more: object) -> Case:
        return Case(name=f"rows {name}", damage=damage, names="manifest", **more)  # type: ignore[arg-type]

    cases = [
        case(f"metadata {text and text[:20]!r}", r.in_newest_version(metadata=text))
        for text in (None, "", "{", "null", "[]", DEEP, '{"manifest_path": 5}', '{"manifest_path": NaN}')
    ]
    for location in ("/etc", "../outside", "nodes/../../x", "nodes/", "nodes", "", None, "nodes/a/b", "C:\\x", "."):
        cases.append(case(f"location {location!r}", r.in_registration(location=location)))
    cases += [
        case("unregistered", r.without_registration()),
        case("version null", r.in_newest_version(table_version=None)),
        case("version as text", r.retyped("table_version", pa.string())),
        case("version signed", r.retyped("table_version", pa.int64())),
        case("version missing", r.retyped("table_version", None)),
        case("metadata missing", r.retyped("metadata", None)),
        case("object_id large", r.retyped("object_id", pa.large_string())),
        case("tombstone null", r.tombstone(None)),
        case("identity null", r.in_versions(stable_table_id=None), stamps=(6,)),
        case("identity zero", r.in_versions(table_incarnation_id=0), stamps=(6,)),
        case("identity other", r.in_registration(stable_table_id=999), stamps=(6,)),
        case("empty", r.rows(lambda _data: []), scope=HARMLESS, must_fail=()),
        case("doubled", r.doubled(), scope=HARMLESS, must_fail=()),
        case("duplicate alias", r.second_registration(stable_table_id=99), stamps=(6,)),
        case("tombstone on top", r.tombstone(10**9), scope=HARMLESS, must_fail=()),
        case("tombstone below", r.tombstone(1), scope=HARMLESS, must_fail=()),
        case("unknown kind", r.extra_row(object_type="galaxy"), scope=HARMLESS, must_fail=()),
        case("commit metadata", r.in_commits(metadata="{"), scope=HARMLESS, must_fail=(), stamps=(6,)),
        case("commit time", r.in_commits(metadata='{"created_at": 1e999}'), scope=HARMLESS, must_fail=(), stamps=(6,)),
        case("row count null", r.in_versions(row_count=None), scope=HARMLESS, must_fail=()),
    ]
    for version in (2**64 - 1, 2**63, 2**32, 1000):
        cases.append(_table(f"pinned at {version}", r.in_newest_version(table_version=version)))
    cases.append(_table("pinned at 0", r.in_versions(table_version=0), ()))
    cases.append(_table("pinned on a lost branch", r.in_newest_version(table_branch="ghost")))
    return cases


def _table(name: str, damage: d.Damage, must_fail: tuple[str, ...] = WRITES) -> Case:
    return Case(name=f"table {name}", damage=damage, names=PERSON, scope=TABLE, must_fail=must_fail)


def _tables() -> list[Case]:
    newest = lambda root: d.newest(d.person(root))  # noqa: E731
    return [
        _table("missing", d.on(d.person, d.remove)),
        _table("is a file", d.on(d.person, lambda p: (d.remove(p), p.write_text("x")))),
        _table("version truncated", d.on(newest, d.halve)),
        _table("version empty", d.on(newest, d.empty)),
        _table("version garbage", d.on(newest, d.scramble)),
        _table("footer", d.on(newest, d.flip_footer)),
        _table("versions missing", d.on(d.person, lambda p: d.remove(p / "_versions"))),
        _table("head behind its pin", d.on(d.person, d.lose_newest(1))),
        _table("data missing", d.on(d.person, lambda p: d.remove(p / "data"))),
        _table("data truncated", d.on(d.person, d.each("data", d.halve))),
        _table("data garbage", d.on(d.person, d.each("data", d.scramble))),
        _table("data empty", d.on(d.person, d.each("data", d.empty))),
        _table("indexes missing", d.on(d.person, lambda p: d.remove(p / "_indices")), ()),
        _table("indexes garbage", d.on(d.person, d.each("_indices", d.scramble)), ()),
        _table("transactions missing", d.on(d.person, lambda p: d.remove(p / "_transactions")), ()),
        Case(name="table linked out of the graph", damage=d.on(d.person, d.link_away), names="link", scope=GRAPH),
    ]


def _recovery() -> list[Case]:
    hostile: dict[str, bytes | str] = {
        "empty": b"",
        "deeply nested": DEEP,
        "a list": "[]",
        "NaN": "NaN",
        "BOM": b"\xef\xbb\xbf{}",
        "not UTF-8": b"\xff\xfe",
        "huge": '{"schema_version": ' + "9" * 5000 + "}",
        "fields of wrong types": '{"schema_version":"x","operation_id":1,"started_at":2,"tables":3}',
    }
    fails = ("check", "optimize")
    cases = [
        Case(name=f"sidecar {name}", damage=d.sidecar(raw), names=SIDECAR, must_fail=fails)
        for name, raw in hostile.items()
    ]
    return [
        *cases,
        Case(name="recovery is a file", damage=d.file_at("__recovery"), names="__recovery", must_fail=fails),
        Case(name="recovery is a loop", damage=d.loop("__recovery"), names="__recovery", must_fail=fails),
        Case(
            name="sidecar is a folder",
            damage=d.folder_at(f"__recovery/{SIDECAR}.json"),
            names="__recovery",
            scope=HARMLESS,
            must_fail=(),
        ),
        Case(
            name="staging file",
            damage=d.put(f"{IR}.staging", "{}"),
            names=f"{IR}.staging",
            must_fail=fails,
        ),
    ]


def _lease(ttl: str, released: str = "false") -> str:
    return (
        f'{{"number":7,"token":"t","owner":"o","purpose":"p","ttl_seconds":{ttl},"pid":1,"machine":"elsewhere",'
        f'"renewals":0,"released":{released}}}'
    )


def _own() -> list[Case]:
    lease, journal = f"__maintenance/lease-{7:020d}.json", "__maintenance/operations"
    fine: dict[str, d.Damage] = {
        "lease garbage": d.put(lease, "{"),
        "lease empty": d.put(lease, ""),
        "lease deep": d.put(lease, DEEP),
        "lease NaN": d.put(lease, _lease("NaN")),
        "lease infinite": d.put(lease, _lease("Infinity")),
        "lease is a folder": d.folder_at(lease),
        "lease released": d.put(lease, _lease("60", "true")),
        "lease without a next number": d.put(f"__maintenance/lease-{10**20 - 1}.json", _lease("60")),
        "journal garbage": d.put(f"{journal}/01ARZ3NDEKTSV4RRFFQ69G5FAV.json", "]["),
        "half-written files": d.put("__recovery/01ARZ3NDEKTSV4RRFFQ69G5FAV.json.0123.tmp", "{"),
    }
    broken: dict[str, d.Damage] = {
        "maintenance is a file": d.file_at("__maintenance"),
        "journal is a file": d.file_at(journal),
        "lease held": d.put(lease, _lease("1800")),
    }
    harmless = [Case(name=n, damage=x, names="", scope=HARMLESS, must_fail=()) for n, x in fine.items()]
    needle = {"lease held": "lease"}
    return harmless + [
        Case(name=n, damage=x, names=needle.get(n, "__maintenance"), must_fail=WRITES) for n, x in broken.items()
    ]
