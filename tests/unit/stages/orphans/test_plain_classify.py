"""Verdicts in plain Lance: only what is inside of a live dataset can be an orphan."""

from __future__ import annotations

import pytest

from omnigraph_ops.graph.references import DatasetReferences, References
from omnigraph_ops.stages.orphans.classify import Judge, Standing

LIVE = "items.lance"
TABLE = "nodes/0123456789abcdef"


def judge(*, publishes: bool, live: str) -> Judge:
    exact = frozenset({f"{live}/data/used.lance"})
    dataset = DatasetReferences(path=live, branches=(), exact=exact, loose=frozenset(), indexes=frozenset())
    references = References(datasets={live: dataset}, skipped=(), exact=exact, loose=frozenset(), indexes=frozenset())
    return Judge(references=references, live=frozenset({live}), active_holds=frozenset(), publishes=publishes)


@pytest.mark.parametrize(
    ("path", "standing"),
    [
        (f"{LIVE}/data/used.lance", Standing.NEEDED),
        (f"{LIVE}/data/lost.lance", Standing.ORPHAN),
        (f"{LIVE}/notes.txt", Standing.UNKNOWN),
        ("other.lance/data/lost.lance", Standing.UNKNOWN),
        (f"{TABLE}/data/lost.lance", Standing.UNKNOWN),
        ("__maintenance/rewrites/plain.other.lance/lease-00000000000000000007.json", Standing.NEEDED),
        ("__maintenance/rewrites/plain.items.lance/lease-00000000000000000007.json", Standing.NEEDED),
    ],
)
def test_plain(path: str, standing: Standing) -> None:
    assert judge(publishes=False, live=LIVE).verdict(path).standing is standing


@pytest.mark.parametrize(
    ("path", "standing"),
    [
        (f"{LIVE}/data/lost.lance", Standing.UNKNOWN),
        ("nodes/0000000000000000/data/lost.lance", Standing.ORPHAN),
        ("__maintenance/rewrites/nodes.0000000000000000/lease-00000000000000000007.json", Standing.ORPHAN),
    ],
)
def test_a_graph_has_no_datasets_at_its_root(path: str, standing: Standing) -> None:
    assert judge(publishes=True, live=TABLE).verdict(path).standing is standing
