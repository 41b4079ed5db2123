"""Names of the Lance tags and folders of a freeze. Pure."""

from __future__ import annotations

from omnigraph_ops.coordination.state import FREEZES_DIR
from omnigraph_ops.graph.ids import is_ulid

_PREFIX = "omnigraph-ops.freeze."


def tag_name(freeze_id: str, number: int) -> str:
    """The name of one tag of a freeze; numbers count within a dataset. Pure."""
    return f"{_PREFIX}{freeze_id}.{number}"


def freeze_of_tag(name: str) -> str | None:
    """The id of the freeze that a tag belongs to, None for anybody else's tag. Pure."""
    if not name.startswith(_PREFIX):
        return None
    freeze_id, _, number = name.removeprefix(_PREFIX).partition(".")
    return freeze_id if is_ulid(freeze_id) and number.isdigit() else None


def contract_folder(freeze_id: str) -> str:
    """Where a freeze keeps the root's files as they were, relative to the graph. Pure."""
    return f"{FREEZES_DIR}/{freeze_id}"
