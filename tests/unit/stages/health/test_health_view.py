"""What a person reads of the health of a graph."""

from __future__ import annotations

from dataclasses import replace

from omnigraph_ops.models.health import HealthPart, HealthReport, TableHealth, VectorHealth
from omnigraph_ops.stages.health.stage import Health


def test_health_is_told_worst_first_with_its_reasons() -> None:
    bad = TableHealth(
        table_key="node:A",
        score=60,
        parts=(
            HealthPart(name="unindexed", points=20, most=25),
            HealthPart(name="versions", points=0, most=5),
        ),
        fragments=9,
        small_fragments=8,
        cutoff=4,
        data_bytes=2048,
        unindexed_share=0.8,
        worst_index="id_idx",
        versions=12,
        dead_bytes=1024,
        note="drifted",
    )
    lost = TableHealth(table_key="node:B", error="it cannot be opened")
    report = HealthReport(uri="/g", stamp=6, graph_version=1, score=60, tables=(lost, bad))
    view = Health().view(report)
    assert view.title == "health /g — 2 tables, 60 of 100 by bytes without 1 that cannot be read, worst first"
    found = [{h: c for h, c in zip(view.sections[0].header, row, strict=True) if c} for row in view.sections[0].rows]
    assert found == [
        {"Table": "node:B", "Score": "?", "Note": "it cannot be opened"},
        {
            "Table": "node:A",
            "Score": "60",
            "What takes points off": "unindexed -20 of 25",
            "Small / all fragments": "8 / 9 (cutoff 4)",
            "Deleted": "0%",
            "Unindexed": "80% (id_idx)",
            "Versions": "12",
            "Live": "2.0 KiB",
            "Dead": "1.0 KiB",
            "Maintained": "never recorded",
            "Note": "drifted",
        },
    ]


def test_every_vector_index_has_a_row_that_says_what_is_wrong() -> None:
    asked = VectorHealth(
        name="v_idx",
        column="v",
        kind="IVF_FLAT",
        metric="l2",
        partitions=1,
        recommended=4,
        rows=20_000,
        smallest=20_000,
        largest=20_000,
        segments=2,
        uncovered_rows=12,
        size_bytes=2048,
        problem="v_idx has 1 partition",
        recall=0.5,
        recall_at_1=0.25,
        bytes_per_query=1024,
        drift=1.5,
    )
    fine = replace(asked, name="w_idx", problem=None, recall=None, recall_at_1=None, bytes_per_query=None, drift=None)
    table = TableHealth(table_key="node:A", score=100, vectors=(asked, fine))
    view = Health().view(HealthReport(uri="/g", stamp=6, graph_version=1, score=100, tables=(table,)))
    first, second = view.sections[1].rows
    assert first == (
        *(
            "node:A v_idx",
            "IVF_FLAT l2",
            "1 / 4",
            "20,000 / 20,000",
            "2",
            "12",
            "2.0 KiB",
            "0.25 / 0.50",
            "1.0 KiB",
            "1.5",
        ),
        "v_idx has 1 partition; optimize --retrain-vectors mends that if its vectors allow; of several partitions a "
        "query with `limit 1` reads one",
    )
    assert second[7:] == ("not asked", "", "", "")
