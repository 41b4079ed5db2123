"""From a path and the references to a verdict, in a graph and on plain Lance."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph_ops.graph.references import Reference, References
from omnigraph_ops.lance.gateway import BranchRef
from omnigraph_ops.models.orphans import OrphanKind, SkippedDataset
from omnigraph_ops.stages.orphans.survey import Judge, Standing

LIVE, SKIPPED, DROPPED = "nodes/00000000000000aa", "nodes/00000000000000bb", "edges/00000000000000cc"
UUID, OTHER = "e38efcac-ca68-4e47-b648-15d6cd5a9983", "00000000-0000-4000-8000-000000000000"
ULID = "01ARYZ6S410000000000000000"


def ref(name: str, parent: str | None = None) -> BranchRef:
    return BranchRef(name=name, parent_branch=parent, parent_version=1, identifier=())


def judge() -> Judge:
    exact = frozenset({f"{LIVE}/data/used.lance", f"{LIVE}/tree/b/data/own.lance", f"{LIVE}/_transactions/1-a.txn"})
    loose, indexes = frozenset({"data/elsewhere.lance"}), frozenset({UUID})
    return Judge(
        references=References(
            branches={LIVE: (ref("b"), ref("c", "lost"))},
            skipped=(SkippedDataset(path=SKIPPED, reason="damaged"),),
            exact=exact,
            loose=loose,
            indexes=indexes,
        ),
        live=frozenset({LIVE, SKIPPED}),
        active_holds=frozenset({ULID}),
        journalled=frozenset({f"{LIVE}/data/resumable.lance"}),
    )


@pytest.mark.parametrize(
    "path",
    [
        f"{LIVE}/data/used.lance",
        f"{LIVE}/data/used/0101.blob",
        f"{LIVE}/tree/b/data/own.lance",
        f"{LIVE}/tree/b/data/own/0101.blob",
        f"{LIVE}/data/elsewhere.lance",
        f"{LIVE}/tree/b/data/elsewhere.lance",
        f"{LIVE}/tree/dead/data/elsewhere.lance",
        f"{LIVE}/data/elsewhere/0101.blob",
        f"{LIVE}/_indices/{UUID}/page.lance",
        f"{LIVE}/tree/dead/_indices/{UUID}/page.lance",
        f"{LIVE}/tree/lost/data/x.lance",
        f"{LIVE}/_transactions/1-a.txn",
        f"{LIVE}/_versions/18446744073709551614.manifest",
        f"{LIVE}/tree/b/_versions/latest_version_hint.json",
        f"{LIVE}/_refs/tags/x.json",
        f"{SKIPPED}/data/x.lance",
        f"{SKIPPED}/anything",
        f"{DROPPED}/data/elsewhere.lance",
        "__manifest/data/x.lance",
        "_schema.pg",
        "__init_claim.json",
        "__maintenance/lease-00000000000000000007.json",
        "__maintenance/plans/x.json",
        "__maintenance/audit/x.json",
        "__maintenance/ingest/node.Person.json",
        f"__maintenance/holds/{ULID}.json",
        f"{LIVE}/data/resumable.lance",
        f"__maintenance/rewrites/{LIVE.replace('/', '.')}/lease-00000000000000000007.json",
        f"__maintenance/rewrites/{LIVE.replace('/', '.')}/{ULID}/plan.json",
        f"__maintenance/rewrites/{LIVE.replace('/', '.')}/{ULID}/task-00001.0123456789ab.json",
        "__maintenance/operations/not-an-id.json",
        f"__maintenance/quarantine/{ULID}/nodes/x/data/y.lance",
        f"__maintenance/runs/{ULID}/intent.json",
        f"__maintenance/runs/{ULID}/record.json",
        f"__maintenance/runs/{ULID}/000001.json",
        f"__maintenance/tasks/{'0' * 32}/recorded.json",
        f"__maintenance/tasks/{'0' * 32}/{ULID}/left.json",
        f"__maintenance/tasks/{'0' * 32}/{ULID}/000001.json",
        f"__maintenance/consents/{'0' * 64}.json",
        f"__maintenance/runs/lease-{7:020d}.json",
        f"__recovery/{ULID}.json",
    ],
)
def test_needed(path: str) -> None:
    verdict = judge().verdict(path)
    assert verdict.standing is Standing.NEEDED
    assert verdict.reason


@pytest.mark.parametrize(
    ("path", "kind", "group"),
    [
        (f"{LIVE}/data/own.lance", OrphanKind.DATA, None),
        (f"{LIVE}/tree/b/data/used.lance", OrphanKind.DATA, None),
        (f"{LIVE}/data/own/0101.blob", OrphanKind.BLOB, None),
        (f"{LIVE}/_indices/{OTHER}/page.lance", OrphanKind.INDEX, None),
        (f"{LIVE}/_deletions/0-1-2.arrow", OrphanKind.DELETION, None),
        (f"{LIVE}/_transactions/1-b.txn", OrphanKind.TRANSACTION, None),
        (f"{LIVE}/_versions/.tmpX", OrphanKind.TEMPORARY, None),
        (f"{LIVE}/tree/dead/_versions/7.manifest", OrphanKind.DEAD_BRANCH, f"{LIVE}/tree/dead"),
        (f"{LIVE}/tree/b/x/data/own.lance", OrphanKind.DEAD_BRANCH, f"{LIVE}/tree/b/x"),
        (f"{DROPPED}/_versions/7.manifest", OrphanKind.DROPPED_TABLE, DROPPED),
        (f"{DROPPED}/tree/b/data/x.lance", OrphanKind.DROPPED_TABLE, DROPPED),
        (f"__maintenance/operations/{ULID}.json", OrphanKind.OWN_STATE, None),
        ("__maintenance/results/manual__1/submit_rewrite.0.1.json", OrphanKind.OWN_STATE, None),
        ("__maintenance/holds/01ARYZ6S410000000000000001.json", OrphanKind.OWN_STATE, None),
        (f"__recovery/{ULID}.json.abc.tmp", OrphanKind.TEMPORARY, None),
        (f"__maintenance/rewrites/{DROPPED.replace('/', '.')}/lease-{7:020d}.json", OrphanKind.OWN_STATE, None),
        (f"__maintenance/rewrites/{DROPPED.replace('/', '.')}/{ULID}/plan.json", OrphanKind.OWN_STATE, None),
        (f"__maintenance/rewrites/{LIVE.replace('/', '.')}/{ULID}/plan.json.0a.tmp", OrphanKind.TEMPORARY, None),
        (f"__recovery/{ULID}.json#1", OrphanKind.TEMPORARY, None),
        (f"__maintenance/runs/{ULID}/000001.json.0a.tmp", OrphanKind.TEMPORARY, None),
        (f"__maintenance/tasks/{'0' * 32}/{ULID}/left.json.0a.tmp", OrphanKind.TEMPORARY, None),
    ],
)
def test_orphans(path: str, kind: OrphanKind, group: str | None) -> None:
    verdict = judge().verdict(path)
    assert (verdict.standing, verdict.kind, verdict.group) == (Standing.ORPHAN, kind, group)


@pytest.mark.parametrize(
    "path",
    [
        "notes.txt",
        "../x",
        "/etc/passwd",
        "nodes/readme",
        f"{LIVE}/data/../data/own.lance",
        f"{LIVE}/strange",
        f"{DROPPED}/strange",
        "__maintenance/other/x.json",
        "__maintenance/x.txt",
        f"__maintenance/runs/{ULID}/notes.txt",
        f"__maintenance/rewrites/{LIVE.replace('/', '.')}/{ULID}/notes.json",
        "__recovery/x",
    ],
)
def test_unknown(path: str) -> None:
    assert judge().verdict(path).standing is Standing.UNKNOWN


@pytest.mark.parametrize("alive", [set(), {"a"}, {"a/b"}, {"a/b/c"}, {"a", "a/b/c"}, {"a", "a/b", "a/b/c"}])
def test_of_nested_branches_each_is_dead_or_alive_by_itself(alive: set[str]) -> None:
    known = replace(judge(), references=References(branches={LIVE: tuple(map(ref, sorted(alive)))}))
    for branch in ("a", "a/b", "a/b/c"):
        tree = f"{LIVE}/tree/{branch}"
        verdict = known.verdict(f"{tree}/data/x.lance")
        expected = (OrphanKind.DATA, None) if branch in alive else (OrphanKind.DEAD_BRANCH, tree)
        assert (verdict.standing, verdict.kind, verdict.group) == (Standing.ORPHAN, *expected)


class CountedBranches(tuple[BranchRef, ...]):
    """Counts how often all of them are gone through."""

    times = 0

    def __iter__(self) -> Iterator[BranchRef]:
        self.times += 1
        return super().__iter__()


def test_branches_are_gone_through_as_often_for_many_files_as_for_one() -> None:
    def times(files: int) -> int:
        branches = CountedBranches(ref(f"b{number}") for number in range(5))
        known = replace(judge(), references=References(branches={LIVE: branches}))
        for path in (f"{LIVE}/tree/{branch}/data/{n}.lance" for branch in ("b0", "dead") for n in range(files)):
            assert known.verdict(path).standing is Standing.ORPHAN
            known.meeting_point(path)
        return branches.times

    assert times(50) == times(1)


PLAIN_LIVE = "items.lance"
TABLE = "nodes/0123456789abcdef"


def judge_plain(*, publishes: bool, live: str) -> Judge:
    exact = frozenset({f"{live}/data/used.lance"})
    references = References(branches={live: ()}, exact=exact)
    return Judge(references=references, live=frozenset({live}), active_holds=frozenset(), publishes=publishes)


@pytest.mark.parametrize(
    ("path", "standing"),
    [
        (f"{PLAIN_LIVE}/data/used.lance", Standing.NEEDED),
        (f"{PLAIN_LIVE}/data/lost.lance", Standing.ORPHAN),
        (f"{PLAIN_LIVE}/notes.txt", Standing.UNKNOWN),
        ("other.lance/data/lost.lance", Standing.UNKNOWN),
        (f"{TABLE}/data/lost.lance", Standing.UNKNOWN),
        ("__maintenance/rewrites/plain.other.lance/lease-00000000000000000007.json", Standing.NEEDED),
        ("__maintenance/rewrites/plain.items.lance/lease-00000000000000000007.json", Standing.NEEDED),
    ],
)
def test_plain(path: str, standing: Standing) -> None:
    assert judge_plain(publishes=False, live=PLAIN_LIVE).verdict(path).standing is standing


@pytest.mark.parametrize(
    ("path", "standing"),
    [
        (f"{PLAIN_LIVE}/data/lost.lance", Standing.UNKNOWN),
        ("nodes/0000000000000000/data/lost.lance", Standing.ORPHAN),
        ("__maintenance/rewrites/nodes.0000000000000000/lease-00000000000000000007.json", Standing.ORPHAN),
    ],
)
def test_a_graph_has_no_datasets_at_its_root(path: str, standing: Standing) -> None:
    assert judge_plain(publishes=True, live=TABLE).verdict(path).standing is standing


CHAINS = (LIVE, f"{LIVE}/tree/b", f"{LIVE}/tree/dead", f"{LIVE}/tree/_indices/{OTHER}", DROPPED, SKIPPED)
TAILS = (
    *(f"data/{name}.lance" for name in "pq"),
    *(f"data/{name}/0101.blob" for name in "pq"),
    *(f"_indices/{name}/page.lance" for name in (UUID, OTHER)),
    f"_indices/{UUID}/data/p.lance",
    "_deletions/0-1-2.arrow",
    "_versions/18446744073709551614.manifest",
    "_transactions/1-a.txn",
)
TAIL = st.sampled_from(TAILS)
PATH = st.builds(lambda chain, tail: f"{chain}/{tail}", st.sampled_from(CHAINS), TAIL)
FOUND = st.fixed_dictionaries(
    {
        Reference.EXACT: st.frozensets(PATH),
        Reference.LOOSE: st.frozensets(TAIL),
        Reference.INDEX: st.frozensets(st.sampled_from((UUID, OTHER))),
    }
)


def with_references(found: dict[Reference, frozenset[str]]) -> Judge:
    known = judge()
    exact, loose, indexes = (found[way] for way in Reference)
    return replace(known, references=replace(known.references, exact=exact, loose=loose, indexes=indexes))


@given(path=PATH, found=FOUND)
def test_a_verdict_needs_only_the_references_at_its_meeting_point(
    path: str, found: dict[Reference, frozenset[str]]
) -> None:
    known = judge()
    point = known.meeting_point(path)
    met = {way: frozenset(r for r in found[way] if known.point_of(way, r) == point) for way in Reference}
    assert with_references(met).verdict(path) == with_references(found).verdict(path)
