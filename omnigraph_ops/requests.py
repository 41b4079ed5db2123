"""What somebody asks of a stage, as one pydantic model from which options, trigger forms and reference are made."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, TypeVar, get_args, get_origin

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    PlainSerializer,
    ValidationError,
    WithJsonSchema,
)
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema, from_json

from omnigraph_ops.errors import InvalidInput
from omnigraph_ops.quantities import DURATION, duration, exact_bytes, parse_bytes, parse_duration

SIZE = r"^\s*[0-9]{1,18}\s*(?:[kKmMgGtT]?i?[bB]?)\s*$"
"""As in `20GiB`."""
_NO_WHOLE_NUMBER = "{said} is not a whole number"
_WRONG = {
    "int_parsing": _NO_WHOLE_NUMBER,
    "int_parsing_size": _NO_WHOLE_NUMBER,
    "int_type": _NO_WHOLE_NUMBER,
    "int_from_float": _NO_WHOLE_NUMBER,
    "greater_than_equal": "{said} is not a whole number of at least {ge}",
    "greater_than": "{said} is not above {gt}",
    "less_than_equal": "{said} is above {le}",
    "less_than": "{said} is not a whole number below {lt}",
    "float_parsing": "{said} is not a number",
    "string_type": "{said} is not a text",
    "tuple_type": "is not a list",
    "model_type": "{said} is not a mapping of fields to values",
    "missing": "is missing",
    "extra_forbidden": "is unknown",
}
"""What is wrong with a value, by the type of pydantic's error."""


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
    argument: bool = False
    """It is needed, and stands by itself after the graph."""
    shell: bool = True
    """Whether the shell offers it."""
    form: bool = True
    """Whether trigger forms offer it."""


class Request(BaseModel):
    """Base of all requests. The docstring of a field is its help; the fields of the last base come first."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """The JSON schema, with defaults as JSON has them: `7d`. Pure."""
        schema = handler(core)
        properties = handler.resolve_ref_schema(schema)["properties"]
        for name, default in cls.model_construct().model_dump(mode="json", by_alias=True).items():
            if "default" in properties[name]:
                properties[name]["default"] = default
        return schema

    @property
    def said(self) -> str:
        """What is not as by default, as JSON: how another process is told of the request. Pure."""
        return self.model_dump_json(exclude_defaults=True)


Q = TypeVar("Q", bound=Request)


def _by(parse: Callable[[str], int]) -> BeforeValidator:
    def parsed(value: Any) -> Any:
        # A file or a form may make a number of what somebody wrote without a unit.
        text = str(value) if type(value) is int else value
        try:
            return parse(text) if isinstance(text, str) else value
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
Bytes = Annotated[
    int,
    Field(ge=0),
    _by(parse_bytes),
    PlainSerializer(exact_bytes, when_used="json"),
    WithJsonSchema({"type": ["string", "integer"], "pattern": SIZE, "minimum": 0}),
]
"""A size, as in `20GiB`."""
Count = Annotated[int, Field(ge=0, lt=2**32)]
Positive = Annotated[int, Field(ge=1, lt=2**32)]


class TablesRequest(Request):
    """What is asked of a stage that may be about some tables only."""

    tables: Annotated[tuple[str, ...], Option(name="table", metavar="KEY")] = ()
    """Only these tables, as in `node:Person`."""


@dataclass(frozen=True, slots=True)
class RequestField:
    """One field of a request, with what a surface needs to offer it."""

    name: str
    info: FieldInfo
    option: Option
    default: Any
    """As JSON has it: `7d`; None when there is none."""

    @property
    def kinds(self) -> tuple[Any, ...]:
        """What the annotation is made of, without None. Pure."""
        found: tuple[Any, ...] = (self.info.annotation,)
        while any(get_args(kind) for kind in found):
            found = tuple(part for kind in found for part in (get_args(kind) or (kind,)))
        return tuple(kind for kind in found if kind not in {type(None), Ellipsis})

    @property
    def nested(self) -> type[Request] | None:
        """The request inside the request, None for a plain value. Pure."""
        return next((kind for kind in self.kinds if isinstance(kind, type) and issubclass(kind, Request)), None)

    @property
    def enum(self) -> type[Enum] | None:
        """The words that it may be, None when it may be anything. Pure."""
        return next((kind for kind in self.kinds if isinstance(kind, type) and issubclass(kind, Enum)), None)

    @property
    def many(self) -> bool:
        """Whether it is a list. Pure."""
        return get_origin(self.info.annotation) is tuple

    @property
    def default_text(self) -> str:
        """The default for a person, empty when there is none. Pure."""
        return "" if self.default is None or self.default is False or self.default == [] else str(self.default)

    @property
    def help(self) -> str:
        return self.info.description or ""


def fields_of(request: type[Request]) -> Iterator[RequestField]:
    """The fields of a request in the order in which they are written. Pure."""
    defaults = request.model_construct().model_dump(mode="json")
    for name, info in request.model_fields.items():
        option = next((found for found in info.metadata if isinstance(found, Option)), Option())
        yield RequestField(name, info, option, defaults.get(name))


def build(request: type[Q], values: dict[str, Any], spelled: Callable[[str], str] = str) -> Q:
    """The request with these values; `InvalidInput` names the first wrong one as `spelled`. Pure."""
    try:
        return request.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        message = _sentence(first["type"], first["input"], first.get("ctx", {}), first["msg"])
        raise InvalidInput(f"{spelled(where)}: {message}" if where else message) from None


def from_words(request: type[Q], words: str) -> Q:
    """The request that another process was told of; `InvalidInput` names what is wrong. Pure."""
    try:
        return build(request, from_json(words))
    except ValueError as error:
        raise InvalidInput(f"a {request.__name__} is JSON with its fields: {error}") from None


def _sentence(kind: str, said: Any, bounds: dict[str, Any], otherwise: str) -> str:
    """What is wrong with a value, in words that need no Python. Pure."""
    words = _WRONG.get(kind)
    return otherwise.removeprefix("Value error, ") if words is None else words.format(said=repr(said), **bounds)
