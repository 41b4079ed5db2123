"""What a person reads of the health of a graph."""

from __future__ import annotations

from omnigraph_ops.models import HealthPart, HealthReport, TableHealth
from omnigraph_ops.stages.health.view import health_view


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
    view = health_view(report)
    assert view.title == "health /g — 2 tables, 60 of 100 by bytes, worst first"
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
