"""Who could have made the versions past the pin, and when. Pure."""

from __future__ import annotations

from omnigraph_ops.graph.history import History
from omnigraph_ops.graph.lance_manifest import VersionRecord
from omnigraph_ops.models import TransactionProperty, VersionEvidence
from omnigraph_ops.views.readable import short

MAX_VERSIONS = 100
MAX_PROPERTIES = 8
_MAX_TEXT = 200


def version_evidence(chain: History, *, after: int) -> tuple[VersionEvidence, ...]:
    """One entry per version past the pin, up to the first that cannot be read. Pure."""
    found = [_evidence(record) for record in chain.records[:MAX_VERSIONS]]
    if chain.problem is not None and len(chain.records) < MAX_VERSIONS:
        number = after + 1 + len(chain.records)
        found.append(VersionEvidence(version=number, operation=None, problem=short(chain.problem, _MAX_TEXT)))
    return tuple(found)


def _evidence(record: VersionRecord) -> VersionEvidence:
    return VersionEvidence(
        version=record.version,
        operation=record.operation,
        committed_at_us=record.committed_at_us,
        read_version=record.read_version,
        writer=None if record.writer is None else short(record.writer, _MAX_TEXT),
        predicate=None if record.predicate is None else short(record.predicate, _MAX_TEXT),
        properties=tuple(
            TransactionProperty(name=short(name), value=short(value, _MAX_TEXT))
            for name, value in record.properties[:MAX_PROPERTIES]
        ),
    )
