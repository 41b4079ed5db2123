"""What keeps every destructive stage away from a graph."""

from __future__ import annotations

from omnigraph_ops.graph.layout import SCHEMA_APPLY_LOCK
from omnigraph_ops.graph.sidecars import sidecar_path
from tests.property.world import World


def lock(world: World) -> None:
    """A schema apply is under way. Writes."""
    world.graph().manifest().create_branch(SCHEMA_APPLY_LOCK)


def arm(world: World) -> None:
    """A sidecar waits for its recovery. Writes."""
    world.graph().storage.write(sidecar_path("01ARYZ6S410000000000000000"), b"{}")


STOPS = (lock, arm)
