"""All verbs, and the way from the words of a command line to the call of one, or to why they do not hold together."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence

import rich_click as click
from click.exceptions import Exit, MissingParameter, NoArgsIsHelpError

from omnigraph_ops.cli.call import PROGRAM, Parsed, cli
from omnigraph_ops.errors import UsageError

# They declare the verbs, in the order of the help.
from omnigraph_ops.cli import stages  # noqa: F401 # isort: skip
from omnigraph_ops.cli import records  # noqa: F401 # isort: skip
from omnigraph_ops.cli import keeping  # noqa: F401 # isort: skip
from omnigraph_ops.cli import setup  # noqa: F401 # isort: skip

_NO_TEXT = re.compile("[\ud800-\udfff]")
"""How Python represents bytes of an argument that are not UTF-8. Neither records nor object stores can hold them."""
_EXTRA = re.compile(r"Got unexpected extra arguments? \((.*)\)")


def parse(argv: Sequence[str] | None) -> Parsed | int:
    """What the command line says, or the exit code when it only asked for help. Writes help to stdout.

    Raises:
        UsageError: it does not hold together; nothing was read.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    if broken := next((word for word in words if _NO_TEXT.search(word)), None):
        raise UsageError(f"the argument {broken!a} is not UTF-8; nothing was read or written; give it in UTF-8")
    try:
        with cli.make_context(PROGRAM, words) as context:
            found = cli.invoke(context)
    except NoArgsIsHelpError as nothing:
        raise UsageError(f"no verb was given; `{PROGRAM} --help` lists them") from nothing
    except Exit as done:
        return int(done.exit_code)
    except click.ClickException as error:
        where = getattr(error, "ctx", None)
        named = words[0] if words and words[0] in cli.commands else ""
        command = where.command_path if where is not None else f"{PROGRAM} {named}".rstrip()
        raise UsageError(f"{_message(error)}; nothing was done; `{command} --help` lists what it takes") from None
    assert isinstance(found, Parsed)
    return found


def _message(error: click.ClickException) -> str:
    """What is wrong with a command line, after the option or argument that it is about. Pure."""
    if isinstance(error, MissingParameter) or not isinstance(error, click.BadParameter) or error.param is None:
        # Choices are on lines of their own there.
        return _EXTRA.sub(r"too many arguments: \1", " ".join(error.format_message().split()).rstrip("."))
    return f"{max(error.param.opts, key=len)}: {error.message}"
