"""Plans as files: written by a preview, bound to by `--plan`."""

from __future__ import annotations

from pathlib import Path

from omnigraph_ops import serde
from omnigraph_ops.coordination.sealed import P
from omnigraph_ops.errors import InvalidInput


def read_plan(path: str, cls: type[P], consequence: str) -> P:
    """The plan in a file, its seal not yet checked; `InvalidInput` when there is none. Reads."""
    try:
        return serde.from_json(cls, Path(path).read_bytes())
    except OSError as error:
        raise InvalidInput(f"cannot read the plan {path!r}: {error.strerror}; {consequence}") from None
    except InvalidInput as error:
        raise InvalidInput(f"the file {path!r} holds no such plan of this release: {error}; {consequence}") from None


def write_plan(path: str, plan: object) -> None:
    """Write a plan for a later `--plan`; `InvalidInput` when it cannot be written. Writes."""
    try:
        Path(path).write_text(serde.dumps(plan) + "\n", encoding="utf-8")
    except OSError as error:
        raise InvalidInput(f"cannot write the plan {path}: {error.strerror}; nothing else was done") from None
