"""The trigger form of the nightly DAG."""

from __future__ import annotations

from airflow.sdk import Param

from omnigraph_airflow.forms import request_params
from omnigraph_airflow.params import bound_params, budget_params, graph_param
from omnigraph_ops.stages.registry import planned

ADVANCE = "Approve in advance"
_ALL_TABLES = ("tables",)
"""A night is for the whole graph."""


def night_params() -> dict[str, Param]:
    """Everything that a person may say about one night. Pure."""
    return {
        "graph": graph_param(named=False),
        **stage_params(),
    }


def stage_params() -> dict[str, Param]:
    """The same without the graph, for a DAG that has its own. Pure."""
    return {
        **request_params(planned("cleanup"), but=_ALL_TABLES),
        "spark_threshold": Param(
            None,
            type=["null", "integer"],
            minimum=0,
            title="Spark from (bytes)",
            description_md="Rewrites of at least this many bytes run on Spark. Empty: the deployment's setting.",
        ),
        "quiet_seconds": Param(
            300,
            type="integer",
            minimum=0,
            title="Quiet seconds",
            description_md="Start only after nobody has published for this long.",
        ),
        **budget_params(),
        **request_params(planned("repair"), but=_ALL_TABLES),
        **_repair_params(),
        **_cleanup_params(),
    }


def _repair_params() -> dict[str, Param]:
    return {
        "force_repair": Param(
            False,
            type="boolean",
            title="Force repair",
            description_md="Where the switch of the repair approval starts: whether an approved repair also "
            "publishes drift that is **not** verified maintenance.",
        ),
        "confirm_repair": Param(
            False,
            type="boolean",
            title="Confirm the repair now",
            section=ADVANCE,
            description_md="Publish verified maintenance without asking. Other drift still waits for a person.",
        ),
    }


def _cleanup_params() -> dict[str, Param]:
    return {
        "confirm_cleanup": Param(
            False,
            type="boolean",
            title="Confirm the cleanup now",
            section=ADVANCE,
            description_md="Remove without asking, up to the bounds below.",
        ),
        **bound_params("versions", 1000, section=ADVANCE),
        "standing_approval": Param(
            None,
            type=["null", "object"],
            title="Standing approval of cleanups",
            section=ADVANCE,
            properties={
                "max_versions": {"type": "integer", "minimum": 0},
                "max_bytes": {"type": "integer", "minimum": 0},
            },
            additionalProperties=False,
            description_md='Bounds, as in `{"max_versions": 500, "max_bytes": 1000000000}`. '
            "A plan outside them waits for a person.",
        ),
    }
