"""Declares the verb of every stage of the registry."""

from __future__ import annotations

from omnigraph_ops.cli import planned, run
from omnigraph_ops.cli.orphans import QUARANTINE_OPTIONS, about_quarantine
from omnigraph_ops.cli.queue import QUEUE, queued
from omnigraph_ops.stages.registry import PLANNED, UNASKED

_BESIDE = {"optimize": ((QUEUE,), queued), "orphans": ((QUARANTINE_OPTIONS,), about_quarantine)}
"""What a verb does beside its stage, with the options for it."""

for _unasked in UNASKED:
    _options, _instead = _BESIDE.get(_unasked.name, ((), None))
    run.declare(_unasked, *_options, instead=_instead)
for _planned in PLANNED:
    _options, _instead = _BESIDE.get(_planned.name, ((), None))
    planned.declare(_planned, *_options, instead=_instead)
