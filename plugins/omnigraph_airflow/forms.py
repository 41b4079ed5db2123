"""Trigger forms: params that each DAG has, those from the requests of stages, and the request that a run makes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from airflow.sdk import Param

from omnigraph_airflow.graphs import default_graph, graphs_offered
from omnigraph_ops.config.graph_entries import NAME
from omnigraph_ops.requests import SIZE, Request, RequestField, build, fields_of
from omnigraph_ops.stages.stage import AnyPlanned, AnyRun, FormField

if TYPE_CHECKING:
    from omnigraph_ops.graph import Graph
    from omnigraph_ops.stages.optimize.stage import PlanRequest


def graph_param(*, named: bool = True) -> Param:
    """Which graph: one of the graphs file, where the deployment has one and `named` ones are meant. Reads both.

    The names are proposals: Airflow checks a param again at every task, and an entry may be renamed meanwhile.
    """
    offered, default = graphs_offered() if named else {}, default_graph()
    names: dict[str, Any] = {"examples": [*offered], "pattern": f"^{NAME}$"} if offered else {}
    lines = [
        "One of the graphs file:" if offered else "Path or URI.",
        *(f"- `{name}`: {what}" for name, what in offered.items()),
        "",
        f"Empty: the deployment's graph, {f'`{default}`' if default else 'which is not set'}.",
    ]
    return Param(None, type=["null", "string"], title="Graph", description_md="\n".join(lines), **names)


_MOST_CONFIRMED = 1_000_000_000


def bound_params(stage: AnyPlanned, **place: Any) -> dict[str, Param]:
    """How much a confirmation alone covers, for whoever gives it to see and to change. Pure."""
    if stage.measure is None:
        return {}
    what = stage.measure.noun
    return {
        f"confirm_{what}": Param(
            stage.measure.default,
            type="integer",
            minimum=0,
            maximum=_MOST_CONFIRMED,
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


def bounds_in_params(stage: AnyPlanned) -> dict[str, str] | None:
    """What the run says in the `bound_params` of a stage, as templates; None for one without a measure. Pure."""
    if stage.measure is None:
        return None
    return {"count": f"{{{{ params.confirm_{stage.measure.noun} }}}}", "size": "{{ params.confirm_size }}"}


def switch_param(title: str, text: str, **place: Any) -> Param:
    """Something that is off unless a person wants it. Pure."""
    return Param(False, type="boolean", title=title, description_md=text, **place)


def digest_param() -> Param:
    """The plan that the person saw in an earlier preview. Pure."""
    return Param(
        None,
        type=["null", "string"],
        pattern=r"^\s*sha256:[0-9a-f]{64}\s*$",
        title="Digest of a previewed plan",
        description_md="With **Confirm**: carry out exactly the plan of an earlier preview, whatever its size, without "
        "asking again; where the graph names approvers, one of them is asked. It is in the preview's log and in its "
        "report.",
    )


FORCE = "force"
"""The switch of a stage that has one, in trigger forms and in the forms of approvals."""
ALLOW_YOUNG = "allow_young"
_UNSAID: tuple[Any, ...] = (None, [], {})
"""What the trigger form makes of an empty field, by its type."""


def stage_params(stage: AnyPlanned) -> dict[str, Param]:
    """Everything that a person may say to the manual DAG of a stage. Reads the graphs file."""
    asked = request_params(stage)
    young = switch_param("Allow young", f"Let an age be less than {stage.age}.")
    plain = {name: param for name, param in asked.items() if not param.schema.get("section")}
    starts = f"Where the switch **{stage.switch.title}** of the approval starts." if stage.switch else ""
    return {
        "graph": graph_param(),
        **plain,
        **({ALLOW_YOUNG: young} if stage.younger_in_forms else {}),
        "confirm": _confirm(stage),
        **bound_params(stage),
        "digest": digest_param(),
        **({FORCE: switch_param("Force", starts)} if starts else {}),
        **asked,
    }


def request_params(stage: AnyPlanned | AnyRun, *, but: Collection[str] = ()) -> dict[str, Param]:
    """A param for every field of the stage's request that a form offers. Pure."""
    schema = stage.request.model_json_schema()
    shown = {field.name: field for field in stage.form}
    return {
        field.name: _param(
            shown.get(field.name, FormField(name=field.name)),
            _plain(schema["properties"][field.name], schema.get("$defs", {})),
            default=field.default,
            help=_help(field),
            section=field.option.section,
        )
        for field in fields_of(stage.request)
        if field.option.form and field.name not in but
    }


def _help(field: RequestField) -> str:
    """What the form says of a field; of one that it shows as JSON, its keys with what they start from, too. Pure."""
    if field.nested is None:
        return field.help
    keys = (
        f"- `{key.name}`{f', {key.default_text} if left out' if key.default_text else ''}: {key.help}"
        for key in fields_of(field.nested)
    )
    return "\n".join((f"{field.help} The keys of its JSON:", "", *keys))


def in_params(names: Iterable[str]) -> dict[str, str]:
    """A request whose fields are what the run says in the params of the same names, as templates. Pure.

    Printed as Python, which a DAG with native templates reads again: of a bare text it makes what that looks like, and
    a branch that is called `None` would be main.
    """
    return {name: f"{{{{ params.{name} | pprint }}}}" for name in names}


def templated_request(stage: AnyPlanned | AnyRun, *, but: Collection[str] = ()) -> dict[str, str]:
    """The request of a stage as `in_params` has it, of all fields that its form offers. Pure."""
    return in_params(request_params(stage, but=but))


def form_of(stage: AnyPlanned) -> dict[str, Param]:
    """The fields of the stage's approval; the DAG gives them to the operator, where Airflow expects them. Pure."""
    return {FORCE: Param(False, type="boolean", title=stage.switch.title)} if stage.switch else {}


def said(request: type[Request], values: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a form, as the request takes them: only what was said, and texts that Jinja made numbers. Pure."""
    schema = request.model_json_schema()
    properties = {name: _plain(of, schema.get("$defs", {})) for name, of in schema["properties"].items()}
    return {
        name: str(value) if isinstance(value, int | float) and _is_text(properties.get(name, {})) else value
        for name, value in values.items()
        if value not in _UNSAID and not (value == "" and _is_free_text(properties.get(name, {})))
    }


def _is_free_text(schema: Mapping[str, Any]) -> bool:
    """Whether an empty field of the form is one that nobody filled in: an empty age or number is an error. Pure."""
    return _is_text(schema) and not {"pattern", "enum"} & schema.keys()


def _is_text(schema: Mapping[str, Any]) -> bool:
    return schema.get("type") in ("string", ["null", "string"])


def _param(shown: FormField, schema: dict[str, Any], *, default: Any, help: str, section: str) -> Param:
    default = default if shown.default is None else shown.default
    default = None if default == [] else default
    if default is None and isinstance(kind := schema.get("type"), str):
        schema = {**schema, "type": ["null", kind]}
    place: dict[str, Any] = {"section": section} if section else {}
    title = shown.title or shown.name.replace("_", " ").capitalize()
    return Param(default, title=title, description_md=help, **schema, **place)


def _plain(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any]:
    """A JSON schema without references, titles and defaults; `null` is one of its types. Pure."""
    if "$ref" in schema:
        return _plain(definitions[schema["$ref"].rpartition("/")[2]], definitions)
    if "anyOf" in schema:
        kind, *_ = (_plain(of, definitions) for of in schema["anyOf"] if of.get("type") != "null")
        words = {"enum": [None, *kind["enum"]]} if "enum" in kind else {}
        return {**kind, "type": ["null", kind["type"]], **words}
    found = {key: value for key, value in schema.items() if key not in {"title", "default", "description"}}
    if found.get("pattern") == SIZE:
        return {"type": "string", "pattern": SIZE}
    if "items" in found:
        found["items"] = _plain(found["items"], definitions)
    if "properties" in found:
        found["properties"] = {name: _plain(of, definitions) for name, of in found["properties"].items()}
    return found


def _confirm(stage: AnyPlanned) -> Param:
    """Whether the run goes on after its preview. Pure."""
    done = "what is within the bounds below is done" if stage.measure else stage.routine
    alone = f"{done}, and everything else waits" if done else "the run waits"
    return switch_param(
        "Confirm",
        f"Without it the run stops at the preview. With it, {alone} for an approval; where the graph names approvers, "
        "only theirs counts.",
    )


def request_in(stage: AnyPlanned | AnyRun, values: Mapping[str, Any]) -> Any:
    """The request of a stage with the values that a form or a DAG gave; `InvalidInput` names a wrong one. Pure."""
    there = said(stage.request, values)
    left = {f.name for f in stage.form if f.instead in there and str(there.get(f.name)) == str(f.default)}
    return build(stage.request, {name: value for name, value in there.items() if name not in left})


def under(graph: Graph, request: PlanRequest) -> Graph:
    """The graph with what a run asks for in place of the deployment's settings. Pure."""
    return graph.with_settings(request.settings(graph.settings))
