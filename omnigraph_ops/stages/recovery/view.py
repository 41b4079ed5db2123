"""What check, recover and unlock found and did, as views. Pure."""

from __future__ import annotations

from omnigraph_ops.models.health import CheckReport, RecoverReport, UnlockReport
from omnigraph_ops.views.view import Section, View, filled


def check_view(report: CheckReport) -> View:
    """Everything that is in the way, then what to do. Pure."""
    what = f"stamp {report.stamp}" if report.stamp else "plain Lance"
    sidecars = tuple(
        (s.path, s.writer_kind, ", ".join(s.table_keys) or "?", s.classification.value, s.detail)
        for s in report.sidecars
    )
    drift = tuple(
        (
            d.table_key,
            f"{d.manifest_version} → {d.lance_head_version if d.problem is None else '?'}",
            "cannot be read" if d.problem else "drift, covered by a sidecar" if d.covered else "drift, uncovered",
        )
        for d in report.drift
    )
    schema = [(name, "schema staging file") for name in report.staging_files]
    schema += [("__schema_apply_lock__", "writers are kept away")] if report.schema_apply_lock else []
    return View(
        title=f"check {report.uri} — {what}, {report.status.value}",
        sections=filled(
            [
                Section(title="Sidecars", header=("Path", "Writer", "Tables", "State", "Detail"), rows=sidecars),
                Section(title="Schema", header=("What", "Meaning"), rows=tuple(schema)),
                Section(title="Drifted tables", header=("Table", "Published → newest", "State"), rows=drift),
                Section(title="Next", lines=report.advice),
            ]
        ),
    )


def recover_view(report: RecoverReport) -> View:
    """What was done with each sidecar. Pure."""
    header = ("Table", "Action", "Version", "Operation", "Detail")
    rows = tuple(
        (
            o.table_key,
            o.action,
            f"{o.from_version} → {o.to_version}" if o.to_version is not None else "",
            o.operation_id,
            o.detail,
        )
        for o in report.outcomes
    )
    return View(
        title=f"recover {report.uri} — {len(report.outcomes)} sidecars, now {report.status.value}",
        sections=filled([Section(title="Sidecars", header=header, rows=rows)]),
    )


def unlock_view(report: UnlockReport) -> View:
    """Whether there is a lock, or what became of it. Pure."""
    done = "removed" if report.confirm else "held; rerun with --confirm to remove it"
    return View(title=f"unlock {report.uri} — {done if report.locked else 'no schema-apply lock'}")
