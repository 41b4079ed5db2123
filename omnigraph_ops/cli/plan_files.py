"""Plans in files that a person names: read one, and save one where it replaces nothing but another plan."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path
from typing import Any

from omnigraph_ops import serde
from omnigraph_ops.errors import InvalidInput
from omnigraph_ops.outcomes.backups import graph_around
from omnigraph_ops.stages.registry import PLANNED
from omnigraph_ops.stages.stage import AnyPlanned
from omnigraph_ops.storage.half_written import temporary_beside
from omnigraph_ops.storage.store import Storage

_STREAM = re.compile(r"/dev/(?:stdout|stderr|fd/\d+)|/proc/[^/]+/fd/\d+")
"""Names of what this process has open, which may lead to a regular file."""


def plan_in_file(path: str | None, stage: AnyPlanned) -> Any:
    """The plan in a file, its seal not yet checked; None when none is named, or one by its digest. Reads."""
    if path is None or path.startswith("sha256:"):
        return None
    try:
        text = Path(path).read_bytes()
    except OSError as error:
        raise InvalidInput(f"cannot read the plan {path!r}: {error.strerror}; {stage.unharmed}") from None
    try:
        return serde.from_json(stage.plan_type, text)
    except InvalidInput as error:
        other = next((other.name for other in PLANNED if _fits(other, text)), None)
        wrong = f"is for `{other}`" if other else f"is not one of this release: {error}"
        raise InvalidInput(f"the plan in {path!r} {wrong}; {stage.unharmed}") from None


def _fits(stage: AnyPlanned, text: bytes) -> bool:
    """Whether a text is a plan of this stage. Pure."""
    try:
        serde.from_json(stage.plan_type, text)
    except InvalidInput:
        return False
    return True


def refuse_place(path: str) -> None:
    """Refuse to save a plan inside a graph, or over a file that is not a plan; `InvalidInput`. Reads."""
    try:
        place = os.path.abspath(path)
    except FileNotFoundError:
        raise InvalidInput(
            f"the plan {path} is relative, and the working directory is gone; nothing was planned; "
            "give an absolute path"
        ) from None
    if _is_stream(path):
        return
    if (graph := graph_around(Storage(place), itself=False)) is not None:
        raise InvalidInput(f"{path} is inside the graph {graph}; nothing was planned; save the plan elsewhere")
    try:
        text = Path(path).read_bytes()
    except FileNotFoundError:
        return
    except OSError as error:
        raise _unwritten(path, error) from None
    if text and not any(_fits(stage, text) for stage in PLANNED):
        raise InvalidInput(
            f"{path} is there already and is not a plan of this release; nothing was planned; give another name, or "
            "delete that file"
        )


def write_plan(path: str, plan: object) -> None:
    """Save a plan, whole or not at all where it goes to a file. Writes."""
    text = serde.dumps(plan) + "\n"
    try:
        if _is_stream(path):
            Path(path).write_text(text, encoding="utf-8")
        else:
            _replace(os.path.realpath(path), text)
    except OSError as error:
        raise _unwritten(path, error) from None


def _replace(path: str, text: str) -> None:
    beside = temporary_beside(path, ".tmp")
    try:
        Path(beside).write_text(text, encoding="utf-8")
        os.replace(beside, path)
    finally:
        with contextlib.suppress(OSError):
            os.unlink(beside)


def _is_stream(path: str) -> bool:
    """Whether a path leads to what cannot be replaced by a file, as a pipe. Reads."""
    return _STREAM.fullmatch(os.path.abspath(path)) is not None or (os.path.exists(path) and not os.path.isfile(path))


def _unwritten(path: str, error: OSError) -> InvalidInput:
    return InvalidInput(f"cannot write the plan {path}: {error.strerror}; nothing else was done")
