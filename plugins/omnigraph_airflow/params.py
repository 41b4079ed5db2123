"""Params that belong to no stage's request; each DAG gets its own, because a run sets their values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow.sdk import Param

from omnigraph_airflow.graphs import default_graph, graphs_offered
from omnigraph_ops.requests import SIZE


def with_defaults(params: dict[str, Param], defaults: Mapping[str, Any]) -> dict[str, Param]:
    """These params, starting from other values. Changes the params."""
    for name, value in defaults.items():
        params[name].value = value
    return params


def graph_param(*, named: bool = True) -> Param:
    """Which graph: one of the graphs file, where the deployment has one and `named` ones are meant. Reads both."""
    offered, default = graphs_offered() if named else {}, default_graph()
    enum: dict[str, Any] = {"enum": [None, *offered]} if offered else {}
    lines = [
        "One of the graphs file:" if offered else "Path or URI.",
        *(f"- `{name}`: {what}" for name, what in offered.items()),
        "",
        f"Empty: the deployment's graph, {f'`{default}`' if default else 'which is not set'}.",
    ]
    return Param(None, type=["null", "string"], title="Graph", description_md="\n".join(lines), **enum)


def bound_params(what: str, most: int, *, section: str | None = None) -> dict[str, Param]:
    """How much a confirmation alone covers, for whoever gives it to see and to change. Pure."""
    place: dict[str, Any] = {"section": section} if section else {}
    return {
        f"confirm_{what}": Param(
            most,
            type="integer",
            minimum=0,
            title=f"Confirm up to so many {what}",
            description_md="A larger plan waits for an approval.",
            **place,
        ),
        "confirm_size": Param(
            "10GiB",
            type="string",
            pattern=SIZE,
            title="Confirm up to this size",
            description_md="As in `500MB`, `10GiB`. A larger plan waits for an approval.",
            **place,
        ),
    }


def confirm_param(*, alone: str = "what is within the bounds below is done, and everything else waits") -> Param:
    """Whether the run goes on after its preview; `alone`: what confirming without a digest does. Pure."""
    return Param(
        False,
        type="boolean",
        title="Confirm",
        description_md=f"Without it the run stops at the preview. With it, {alone} for an approval; where the graph "
        "names approvers, only theirs counts.",
    )


def digest_param() -> Param:
    """The plan that the person saw in an earlier preview. Pure."""
    return Param(
        None,
        type=["null", "string"],
        pattern=r"^\s*sha256:[0-9a-f]{64}\s*$",
        title="Digest of a previewed plan",
        description_md="With **Confirm**: carry out exactly the plan of an earlier preview, whatever its size, without "
        "asking again. It is in the preview's log and in its report.",
    )
