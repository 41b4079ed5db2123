"""The options that verbs share, and how words of the command line become values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import rich_click as click
from click.shell_completion import CompletionItem

from omnigraph_ops.errors import InvalidInput, did_you_mean
from omnigraph_ops.quantities import duration, parse_duration
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


SECONDS = Converted("duration", parse_duration)
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
