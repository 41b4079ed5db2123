"""The options of verbs: those that they share, those of a request, and how words become values."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import rich_click as click
import yaml
from click.shell_completion import CompletionItem

from omnigraph_ops.errors import InvalidInput, UsageError, did_you_mean
from omnigraph_ops.quantities import duration, parse_duration
from omnigraph_ops.requests import Q, Request, RequestField, build, fields_of
from omnigraph_ops.storage.location import locate

F = TypeVar("F", bound=Callable[..., Any])
_LIMIT = 2**32
DEFAULT_FENCE_SECONDS = 600


class Converted(click.ParamType[Any]):
    """A value that one of our own functions reads."""

    def __init__(self, name: str, convert: Callable[[str], Any], *, is_path: bool = False) -> None:
        self.name = name
        self._convert = convert
        self._is_path = is_path

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Let the shell complete a path; nothing else can be known here. Pure."""
        return [CompletionItem(incomplete, type="file")] if self._is_path else []

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The value of a word; a usage error for one that means nothing. Pure."""
        if not isinstance(value, str):
            return value
        try:
            return self._convert(value)
        except InvalidInput as error:
            self.fail(str(error), param, ctx)


class OneOf(click.Choice[str]):
    """A word of a list, with what a misspelled one may mean."""

    def get_invalid_choice_message(self, value: Any, ctx: click.Context | None) -> str:
        """What is wrong with it. Pure."""
        meant = did_you_mean(str(value), self.choices) or f"; choose from {', '.join(self.choices)}"
        return f"{value!r} is unknown{meant}"


def _address(text: str) -> str:
    locate(text)
    return text


def _whole(least: int) -> Callable[[str], int]:
    def convert(text: str) -> int:
        value = int(text) if text.isascii() and text.isdigit() and len(text) <= len(str(_LIMIT)) else -1
        if not least <= value < _LIMIT:
            raise InvalidInput(f"{text!r} is not a whole number of at least {least}")
        return value

    return convert


# As spark-submit and SparkContext take them; a wrong one would be noticed by the first heavy table only.
_MASTERS = re.compile(r"local(\[([1-9]\d*|\*)(, *\d+)?\])?|local-cluster\[.+\]|spark://.+|k8s://.+|yarn")


def _master(text: str) -> str:
    if _MASTERS.fullmatch(text) is None:
        raise InvalidInput(f"{text!r} is no Spark master, as in spark://host:7077, yarn, k8s://host:443 or local[4]")
    return text


SECONDS = Converted("duration", parse_duration)
MASTER = Converted("master", _master)
ADDRESS = Converted("address", _address, is_path=True)
PATH = Converted("path", str, is_path=True)
COUNT = Converted("count", _whole(0))
POSITIVE = Converted("number", _whole(1))


def was_given(value: object) -> bool:
    """Whether an option was written. 0 is a value, and so is an empty text, which its reader refuses. Pure."""
    return value is not None and value is not False and value != ()


def together(*options: Callable[[F], F]) -> Callable[[F], F]:
    """One decorator of several, in the order in which the help lists them."""

    def decorate(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


def flag(name: str, text: str) -> Callable[[F], F]:
    """A switch that is off by default."""
    return click.option(f"--{name}", is_flag=True, help=text)


OUTPUT = together(
    click.option("--json", is_flag=True, help="Print JSON on stdout, with the engine's field names.", panel="Output"),
    click.option("--quiet", is_flag=True, help="Print no target line and no progress on stderr.", panel="Output"),
)
GRAPH = click.argument("graph", type=ADDRESS, required=False, metavar="GRAPH")
OTHER_ADDRESSES = together(
    click.option("--store", type=ADDRESS, metavar="URI", help="The same as GRAPH, as an option.", panel="Graph"),
    click.option(
        "--cluster", type=ADDRESS, metavar="DIR|URI", help="A cluster directory or storage root.", panel="Graph"
    ),
    click.option("--graph", "graph_id", metavar="ID", help="With --cluster: which of its graphs.", panel="Graph"),
    click.option("--server", metavar="NAME|URL", hidden=True),
)
CONFIRM = "Consent"
YES = click.option("--yes", is_flag=True, help="Consent for a graph that is not on this machine.", panel=CONFIRM)


def fence(text: str) -> Callable[[F], F]:
    """`--fence` and the bound on it; `text` says what it does for this verb."""
    default = duration(DEFAULT_FENCE_SECONDS)
    return together(
        click.option("--fence", "--keep-writers-away", "fence", is_flag=True, help=text, panel="Writers"),
        click.option(
            "--fence-seconds",
            type=SECONDS,
            metavar="DURATION",
            help=f"With --fence: let the writers go on after this (default {default}).",
            panel="Writers",
        ),
    )


def spark(text: str) -> Callable[[F], F]:
    """`--spark`; `text` says what it does for this verb."""
    return click.option("--spark", type=MASTER, metavar="MASTER", help=text, panel="Spark")


def request_options(request: type[Request], panel: str = "") -> list[Callable[[Any], Any]]:
    """The options of a request, those of requests inside it under a heading of their own. Pure."""
    options: list[Callable[[Any], Any]] = []
    for field in fields_of(request):
        nested = field.nested
        if not field.option.shell:
            continue
        if nested is None:
            options.append(_option(field, field.option.section or panel))
            continue
        heading = field.option.section or panel
        if field.option.flag:
            text = f"{nested.__doc__} Ask for it with the defaults below."
            options.append(click.option(f"--{field.option.flag}", is_flag=True, help=text, panel=heading))
        if field.many:
            options.append(_option(field, heading))
        options += request_options(nested, heading)
    return options


def _option(field: RequestField, panel: str) -> Callable[[Any], Any]:
    kind = field.enum
    if field.option.argument:
        # Not required: it may stand in the place of GRAPH, which an option names.
        return click.argument(field.name, metavar=field.option.metavar, type=_kind(field), required=False)
    panels: dict[str, Any] = {"panel": panel} if panel else {}
    if field.info.annotation is bool:
        return click.option(f"--{_word(field)}", field.name, is_flag=True, help=_help(field), **panels)
    return click.option(
        f"--{_word(field)}",
        field.name,
        metavar=field.option.metavar or None,
        multiple=field.many and field.nested is None,
        type=OneOf([str(member.value) for member in kind]) if kind else _kind(field),
        help=_help(field),
        **panels,
    )


_KINDS = {"FILE": PATH, "BACKUP": PATH, "DEST": ADDRESS}
"""What a value is besides text, by its metavar."""


def _kind(field: RequestField) -> Any:
    return _KINDS.get(field.option.metavar, click.STRING)


def _word(field: RequestField) -> str:
    return field.option.name or field.name.replace("_", "-")


def _help(field: RequestField) -> str:
    default = field.default_text
    if not default:
        return field.help
    kind = "default of a preview" if field.option.decides else "default"
    return f"{field.help} ({kind}: {default})"


def given(request: type[Request], options: dict[str, Any]) -> list[str]:
    """The options of a request that were given, as they are spelled. Pure."""
    found = []
    for field in fields_of(request):
        if field.nested is not None:
            found += [f"--{field.option.flag}"] if options.get(field.option.flag) else []
            found += given(field.nested, options)
        if was_given(options.get(field.name)):
            found.append(f"--{_word(field)}")
    return found


def request_of(request: type[Q], options: dict[str, Any]) -> Q:
    """The request that the options ask for; `UsageError` names the first that means nothing. Reads files they name."""
    words = {field.name: f"--{_word(field)}" for field in _all_fields(request)}

    def spelled(where: str) -> str:
        name, *inner = where.split(".")
        if inner and inner[0].isdigit() and was_given(options.get(name)):
            return ": ".join([words[name], f"entry {int(inner[0]) + 1}", *inner[1:]])
        return words.get(where.rpartition(".")[2], where)

    try:
        return build(request, _values(request, options), spelled)
    except InvalidInput as error:
        untouched = "" if "nothing was" in str(error) else "; nothing was read"
        raise UsageError(f"{error}{untouched}") from None


def _all_fields(request: type[Request]) -> Iterator[RequestField]:
    for field in fields_of(request):
        yield field
        if field.nested is not None:
            yield from _all_fields(field.nested)


def _values(request: type[Request], options: dict[str, Any]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for field in fields_of(request):
        value = options.get(field.name)
        if field.nested is None:
            if was_given(value):
                values[field.name] = value
            continue
        inner = _values(field.nested, options)
        if field.many:
            values[field.name] = _listed(field, value, inner)
        elif inner or options.get(field.option.flag):
            values[field.name] = inner
    return values


def _listed(field: RequestField, path: str | None, one: dict[str, Any]) -> list[Any]:
    """The entries of a file, or the one that the options make. Reads the file."""
    if path is None:
        return [one] if one else []
    if one:
        raise UsageError(
            f"--{_word(field)} carries what {', '.join(given(field.nested or Request, one))} say; leave them out; "
            "nothing was read"
        )
    try:
        data = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise InvalidInput(f"cannot read {path!r}: {reason}; nothing was done") from None
    except Exception:  # PyYAML's own, and whatever it comes to for a day like 2026-02-30 or a tag that does not fit
        raise InvalidInput(f"{path!r} is neither YAML nor JSON; nothing was done") from None
    entries: list[Any] = data["rows"] if isinstance(data, dict) and set(data) == {"rows"} else data
    return entries


def undecided(request: type[Request], options: dict[str, Any]) -> list[str]:
    """The options that a plan would have carried by their defaults, with these. Pure."""
    words: list[str] = []
    for field in fields_of(request):
        if field.nested is not None and not field.many:
            if options.get(field.option.flag) or given(field.nested, options):
                words += undecided(field.nested, options)
        elif field.option.decides and options.get(field.name) is None:
            words += [f"--{_word(field)}", field.default_text]
    return words


def words_of(request: Request) -> list[str]:
    """The options that ask for this request, those that decide by a default written out. Pure."""
    words: list[str] = []
    values = request.model_dump(mode="json")
    for field in fields_of(type(request)):
        inner, value = getattr(request, field.name), values[field.name]
        option = f"--{_word(field)}"
        if isinstance(inner, Request):
            words += words_of(inner)
        elif value is True:
            words.append(option)
        elif isinstance(value, list):
            words += [word for item in value for word in (option, str(item))]
        elif value is not None and value is not False and (field.option.decides or value != field.default):
            words += [option, str(value)]
    return words
