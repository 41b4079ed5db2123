"""Declares the verb of every stage of the registry."""

from __future__ import annotations

from omnigraph_ops.cli.orphans import QUARANTINE_OPTIONS, about_quarantine
from omnigraph_ops.cli.planned import declare
from omnigraph_ops.stages.registry import PLANNED

_BESIDE = {"orphans": ((QUARANTINE_OPTIONS,), about_quarantine)}
"""What a verb does beside its stage, with the options for it."""

for _stage in PLANNED:
    _options, _instead = _BESIDE.get(_stage.name, ((), None))
    declare(_stage, *_options, instead=_instead)
