"""What somebody asks of a stage, as one pydantic model from which options, trigger forms and reference are made."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, ValidationError, WithJsonSchema
from pydantic.fields import FieldInfo

from omnigraph_ops.durations import DURATION, duration, parse_duration
from omnigraph_ops.errors import InvalidInput
from omnigraph_ops.sizes import parse_bytes

SIZE = r"^\s*\d{1,18}\s*(?:[kKmMgGtT]?i?[bB]?)\s*$"
"""As in `20GiB`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """How a field of a request is spelled at the shell, and where it stands in a form."""

    metavar: str = ""
    """What the help shows for the value."""
    name: str = ""
    """The option without its dashes, where it is not the field's name."""
    section: str = ""
    """Heading of the options, and of the form's fields, that belong together."""
    decides: bool = False
    """The default is for previews: `--confirm` without a plan has to say it."""
    flag: str = ""
    """Of a request inside a request: the option that asks for it with all its defaults."""
    shell_only: bool = False
    """No field of a trigger form."""


class Request(BaseModel):
    """Base of all requests. The docstring of a field is its help."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


Q = TypeVar("Q", bound=Request)


def _by(parse: Callable[[str], int]) -> BeforeValidator:
    def parsed(value: Any) -> Any:
        try:
            return parse(value) if isinstance(value, str) else value
        except InvalidInput as error:
            raise ValueError(str(error)) from None

    return BeforeValidator(parsed)


Seconds = Annotated[
    int,
    Field(ge=0),
    _by(parse_duration),
    PlainSerializer(duration, when_used="json"),
    WithJsonSchema({"type": "string", "pattern": DURATION}),
]
"""A duration with its unit, as in `7d`."""
Bytes = Annotated[int, Field(ge=0), _by(parse_bytes), WithJsonSchema({"type": "string", "pattern": SIZE})]
"""A size, as in `20GiB`."""
Tables = Annotated[tuple[str, ...], Option(name="table", metavar="KEY")]
"""Table keys; none: all tables."""


@dataclass(frozen=True, slots=True)
class RequestField:
    """One field of a request, with what a surface needs to offer it."""

    name: str
    info: FieldInfo
    option: Option

    @property
    def nested(self) -> type[Request] | None:
        """The request inside the request, None for a plain value. Pure."""
        for kind in (self.info.annotation, *get_args(self.info.annotation)):
            if isinstance(kind, type) and issubclass(kind, Request):
                return kind
        return None

    @property
    def optional(self) -> bool:
        """Whether nothing may be said. Pure."""
        annotation = self.info.annotation
        return get_origin(annotation) in {Union, UnionType} and type(None) in get_args(annotation)

    @property
    def help(self) -> str:
        return self.info.description or ""


def fields_of(request: type[Request]) -> Iterator[RequestField]:
    """The fields of a request in the order in which they are written. Pure."""
    for name, info in request.model_fields.items():
        option = next((found for found in info.metadata if isinstance(found, Option)), Option())
        yield RequestField(name, info, option)


def build(request: type[Q], values: dict[str, Any], spelled: Callable[[str], str] = str) -> Q:
    """The request with these values; `InvalidInput` names the first wrong one as `spelled`. Pure."""
    try:
        return request.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        message = first["msg"].removeprefix("Value error, ")
        raise InvalidInput(f"{spelled(where)}: {message}" if where else message) from None
