"""The command line as values: what is wrong with one of them is wrong usage, found before anything is read."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Callable, Iterator
from typing import Any, NoReturn, TypeVar

from omnigraph_ops.durations import parse_duration
from omnigraph_ops.errors import InvalidInput, UsageError
from omnigraph_ops.sizes import parse_bytes
from omnigraph_ops.storage.location import locate
from omnigraph_ops.suggest import did_you_mean

V = TypeVar("V")
_LIMIT = 2**32


class Parser(argparse.ArgumentParser):
    """Refuses a command line with `UsageError`, in one sentence like every other error."""

    def __init__(self, **named: Any) -> None:
        # A part of an option's name is none: `--conf` must not be the consent that `--confirm` is.
        super().__init__(**named, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        """Refuse the command line."""
        raise UsageError(f"{message}; nothing was done; `{self.prog} --help` lists what it takes")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        meant = did_you_mean(str(value), action.choices) or f"; choose from {', '.join(action.choices)}"
        raise argparse.ArgumentError(action, f"{value!r} is unknown{meant}")


@contextlib.contextmanager
def wrong_usage() -> Iterator[None]:
    """Raise what options are refused for as `UsageError`: together they mean nothing. Pure."""
    try:
        yield
    except InvalidInput as error:
        raise UsageError(str(error)) from None


def _option(convert: Callable[[str], V]) -> Callable[[str], V]:
    """`convert` as argparse wants it, which then adds the name of the option to the refusal. Pure."""

    def converted(text: str) -> V:
        try:
            return convert(text)
        except InvalidInput as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return converted


def _address(text: str) -> str:
    locate(text)
    return text


seconds = _option(parse_duration)
"""A duration, as in `7d`."""
size = _option(parse_bytes)
"""A byte count, as in `20GiB`."""
address = _option(_address)
"""A path or URI, as it was given."""


def positive(text: str) -> int:
    """A whole number of at least 1. Pure."""
    return _whole(text, 1)


def count(text: str) -> int:
    """A whole number of at least 0. Pure."""
    return _whole(text, 0)


def share(text: str) -> float:
    """A share above 0 and at most 1. Pure."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a share, a number above 0 and at most 1")
    return value


def _whole(text: str, least: int) -> int:
    value = int(text) if text.isascii() and text.isdigit() and len(text) <= len(str(_LIMIT)) else -1
    if not least <= value < _LIMIT:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least {least}")
    return value
