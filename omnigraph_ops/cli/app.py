"""The command line: how a verb is declared."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import rich_click as click

from omnigraph_ops import __version__
from omnigraph_ops.cli.call import Call
from omnigraph_ops.cli.options import GRAPH, OTHER_ADDRESSES, OUTPUT, together
from omnigraph_ops.errors import did_you_mean

PROGRAM = "omnigraph-ops"
COMPLETE = "_OMNIGRAPH_OPS_COMPLETE"
Run = Callable[[Call], int]
"""What a verb does; returns the exit code."""
Instead = Callable[[Call], int | None]
"""What the verb of a stage does beside it; None: this call is about the stage."""
CONTEXT = {"help_option_names": ["--help", "-h"], "max_content_width": 120}


class Verbs(click.RichGroup):
    """All verbs, in the order in which they are declared."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names, not sorted: a night has an order. Pure."""
        return list(self.commands)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """The verb of a command line; a misspelled one is named with what it may mean."""
        if args and self.get_command(ctx, args[0]) is None and not args[0].startswith("-"):
            meant = did_you_mean(args[0], self.commands) or f"; choose from {', '.join(self.commands)}"
            raise click.UsageError(f"the verb {args[0]!r} is unknown{meant}", ctx)
        return super().resolve_command(ctx, args)


_EPILOG = """
A first round on a graph that you do not know:

`omnigraph-ops check GRAPH && omnigraph-ops plan GRAPH && omnigraph-ops optimize GRAPH`
"""


@click.group(cls=Verbs, context_settings=CONTEXT, epilog=_EPILOG)
@click.version_option(__version__, prog_name=PROGRAM)
def cli() -> None:
    """Unattended, safe maintenance for Omnigraph graphs."""


@dataclass(slots=True)
class Parsed:
    """What a command line says: the verb's options, and the function that carries it out."""

    verb: str
    options: dict[str, Any]
    run: Run
    graph: bool
    """Whether it addresses a graph that is there."""


def verb(
    name: str, summary: str, *options: Callable[[Any], Any], panel: str, graph: bool = True
) -> Callable[[Run], click.Command]:
    """Declare a verb of the shell.

    Args:
        graph: it addresses one graph.
        panel: the heading under which the help lists it.
    """
    shared = (GRAPH, *options, OTHER_ADDRESSES, OUTPUT) if graph else (*options, OUTPUT)

    def declare(run: Run) -> click.Command:
        @together(*shared)
        def parsed(**values: Any) -> Parsed:
            return Parsed(name, values, run, graph)

        command: click.Command = cli.command(
            name, help=summary, short_help=summary.partition("\n")[0], panel=panel, context_settings=CONTEXT
        )(click.option_panel("Options")(parsed))
        return command

    return declare
