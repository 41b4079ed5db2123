"""How a verb is declared; one call of it: the graph it addresses, what it prints and shows, who is asked, the fence."""

from __future__ import annotations

import contextlib
import io
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import rich_click as click

from omnigraph_ops import __version__, serde
from omnigraph_ops.cli.options import DEFAULT_FENCE_SECONDS, GRAPH, OTHER_ADDRESSES, OUTPUT, together, was_given
from omnigraph_ops.cli.process import LossyStderr
from omnigraph_ops.errors import ApprovalMissing, UsageError, did_you_mean
from omnigraph_ops.progress import SILENT, Counted, Lines, Progress, figure
from omnigraph_ops.storage.location import locate
from omnigraph_ops.views.view import View, for_terminal

if TYPE_CHECKING:
    from rich.progress import Progress as Bars

    from omnigraph_ops.cli.recording import Recorder
    from omnigraph_ops.config.settings import Settings
    from omnigraph_ops.graph import Graph

_SECONDS_BETWEEN_WORDS = 10.0


@dataclass(slots=True, kw_only=True)
class Call:
    """The words of a verb as values, and what all verbs do with them."""

    verb: str
    options: dict[str, Any]
    """Every option and argument by its name; None, empty or False where it was not given."""
    recorder: Recorder
    writes: bool = False
    """Whether this call may change the graph: then it leaves a record. Set before the graph is opened."""
    only_reads: bool = False
    """Whether this call is known to change nothing of the graph, as a preview without a fence."""
    acts: bool = False
    """Whether it goes on to do what needs a consent, recorded or not."""
    printed: bool = True
    """Whether stdout took all that was printed."""
    progress: Progress = field(init=False)

    def __post_init__(self) -> None:
        self.progress = progress_for(quiet=self.quiet)

    @property
    def json(self) -> bool:
        return bool(self.options.get("json"))

    @property
    def quiet(self) -> bool:
        return bool(self.options.get("quiet"))

    def given(self, *names: str) -> list[str]:
        """Those of these options that were given. Pure."""
        return [name for name in names if was_given(self.options.get(name))]

    @property
    def target(self) -> str:
        """The addressed root in its one spelling; `UsageError` when it is not exactly one. Reads a cluster's ledger."""
        said = self.options
        if said["server"] is not None:
            raise UsageError(
                f"`{self.verb}` is a direct (storage-native) command; --server addresses a served graph and does not "
                "apply. Pass a storage URI, or --cluster <dir> --graph <id>."
            )
        names = {"graph": "a positional URI", "store": "--store", "cluster": "--cluster"}
        given = [(name, said[name]) for name in names if said[name] is not None]
        if len(given) > 1:
            first, second = names[given[0][0]], names[given[1][0]]
            raise UsageError(f"{first} and {second} are mutually exclusive — pick one way to address the graph")
        if not given:
            raise UsageError(
                "no graph addressed — pass a positional URI, --store <uri> or --cluster <dir> --graph <id>"
            )
        if said["cluster"] is not None:
            # Imports Lance, which takes a second: not for `--help` and usage errors.
            from omnigraph_ops.graph.opening import resolve_cluster

            return resolve_cluster(said["cluster"], said["graph_id"])
        if said["graph_id"] is not None:
            raise UsageError(
                "--graph selects a graph within a cluster scope; a positional URI / --store is already a single graph"
            )
        return locate(given[0][1]).root

    def echo(self, target: str) -> None:
        """Say what is about to be touched, before it is opened, as the engine does. Writes to stderr."""
        if self.quiet:
            return
        place = "local" if locate(target).is_local else "remote"
        self.tell(f"omnigraph-ops {self.verb} → {target} (direct, {place})")

    def open(self, settings: Settings | None = None) -> Graph:
        """Echo the target and open it; a call that writes is recorded from here on. Reads."""
        from omnigraph_ops.graph.opening import open_graph

        target = self.target
        self.echo(target)
        with _telling(self.progress, target):
            graph = open_graph(target, settings)
        return self.recorder.opened(graph) if self.writes else graph

    def emit(self, value: object, view: View) -> None:
        """Print a result on stdout, as JSON or as its view, and note it. Writes to stdout."""
        self.recorder.note(value)
        if self.json:
            self.say(serde.dumps(value))
        else:
            self.say(for_terminal(view))

    def say(self, text: str) -> None:
        """Print on stdout; where that fails, what was done stands and only the exit code changes. Writes to stdout."""
        try:
            print(text, flush=True)
        except OSError as error:
            # The interpreter flushes stdout once more at its end, which would fail again.
            sys.stdout = io.StringIO()
            self._unprinted(error)

    def tell(self, text: str) -> None:
        """Print on stderr. Writes to stderr."""
        print(text, file=sys.stderr, flush=True)

    def _unprinted(self, error: OSError) -> None:
        """Say that stdout did not take the report; whoever closed the pipe of a command that reads knows. Writes."""
        self.printed = False
        if self.writes:
            done = "what was done stands and is recorded as usual; `omnigraph-ops history` shows it"
        elif self.acts:
            done = "what was done stands; `omnigraph-ops holds` shows freezes and holds"
        elif isinstance(error, BrokenPipeError):
            return
        else:
            done = "nothing was changed"
        self.tell(f"Error: the report could not be printed: {error.strerror or error}; {done}")

    def close(self) -> None:
        """Take down what shows the progress; lines stay. Writes to stderr."""
        if isinstance(self.progress, BarProgress):
            self.progress.close()

    def swap(self, name: str) -> str | None:
        """A second positional argument, which is taken for GRAPH when an option addresses the graph. Pure."""
        said = self.options
        if said[name] is None and said["graph"] is not None and (said["store"] or said["cluster"]):
            said[name], said["graph"] = said["graph"], None
        found: str | None = said[name]
        return found


def progress_for(*, quiet: bool) -> Progress:
    """What shows the progress of this call. Reads the environment."""
    if quiet:
        return SILENT
    if sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TERM") != "dumb":
        return BarProgress()
    return Lines(lambda text: print(f"  {text}", file=sys.stderr, flush=True))


@contextlib.contextmanager
def _telling(progress: Progress, target: str) -> Iterator[None]:
    """Say every few seconds of the block that a graph is still being opened: a silent store is asked for minutes."""
    opened, began = threading.Event(), time.monotonic()

    def tell() -> None:
        while not opened.wait(_SECONDS_BETWEEN_WORDS):
            progress(f"still opening {target}, for {time.monotonic() - began:.0f} s")

    threading.Thread(target=tell, daemon=True).start()
    try:
        yield
    finally:
        opened.set()


class BarProgress:
    """Bars with what is done, how much there is, and the time left; sentences above them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._bars: Bars | None = None
        self._tasks: dict[str, Any] = {}

    def __call__(self, text: str, /) -> None:
        """Print the sentence above the bars. Writes to stderr."""
        with self._lock:
            if self._bars is not None:
                self._bars.console.print(f"  {text}", markup=False, highlight=False, soft_wrap=True)
            else:
                print(f"  {text}", file=sys.stderr, flush=True)

    def at(self, what: str, done: int, total: int | None, unit: Counted) -> None:
        """Move the bar of a piece of work; one that is done goes. Writes to stderr."""
        with self._lock:
            bars = self._bars or self._begin()
            if what not in self._tasks:
                self._tasks[what] = bars.add_task(what, total=total, figure="")
            bars.update(self._tasks[what], completed=done, total=total, figure=figure(done, total, unit))
            if total is not None and done >= total:
                bars.remove_task(self._tasks.pop(what))
                if not self._tasks:
                    bars.stop()
                    self._bars = None

    def close(self) -> None:
        """Remove the bars of what did not get to its end. Writes to stderr."""
        with self._lock:
            if self._bars is not None:
                self._bars.stop()
                self._bars = None

    def _begin(self) -> Bars:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bars

        columns = (TextColumn("  {task.description}"), BarColumn(), TextColumn("{task.fields[figure]}"))
        bars = Bars(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True)
        bars.start()
        self._bars = bars
        return bars


def require_consent(call: Call, target: str, *, does: str = "", untouched: str = "nothing was deleted") -> None:
    """Require --yes, or a typed yes on a terminal, unless the graph is local. Reads stdin.

    Args:
        does: what the verb does, as in `publishes the heads of drifted tables`; empty for what destroys.
        untouched: what is true when the answer is no.

    Raises:
        ApprovalMissing: neither was given; nothing was touched.
    """
    call.acts = True
    if locate(target).is_local or call.options.get("yes"):
        return
    what = f"`{call.verb}`, which {does}," if does else f"destructive `{call.verb}`"
    if call.json or not sys.stdin.isatty():
        raise ApprovalMissing(
            f"refusing {what} against non-local target {target} without confirmation; "
            "pass --yes to confirm (an interactive TTY would be prompted instead)"
        )
    article = "" if does else "a "
    prompt = f"About to run {article}{what} against {target} (not local). Type 'yes' to continue: "
    print(prompt, end="", file=sys.stderr, flush=True)
    if isinstance(sys.stderr, LossyStderr) and sys.stderr.lost:
        raise ApprovalMissing(f"the question about {what} cannot be shown on stderr; {untouched}; pass --yes")
    answer = sys.stdin.readline()
    if not answer.endswith("\n"):
        print(file=sys.stderr)  # the end of input leaves the prompt's line open
    if answer.strip().lower() not in {"yes", "y"}:
        raise ApprovalMissing(f"aborted: {what} not confirmed; {untouched}")


def fence_of(call: Call, graph: Graph) -> AbstractContextManager[Graph]:
    """The graph behind the fence that the options ask for, or as it is. Writes the lock branch while entered."""
    if not call.options.get("fence"):
        return contextlib.nullcontext(graph)
    from omnigraph_ops.coordination.fence import fenced

    seconds = fence_seconds(call)

    def lifted() -> None:
        call.tell(f"warning: the fence of {graph.target} was lifted after {seconds} s; writers go on")

    return fenced(graph, at_most_seconds=float(seconds), on_lift=lifted)


def fence_seconds(call: Call) -> int:
    """The bound on the fence; `UsageError` for a bound without a fence. Pure."""
    said: int | None = call.options.get("fence_seconds")
    if said is not None and not call.options["fence"]:
        raise UsageError("--fence-seconds bounds --fence; give both; nothing was done")
    seconds = DEFAULT_FENCE_SECONDS if said is None else said
    if seconds < 1:
        raise UsageError("--fence-seconds must be at least 1 s; nothing was done")
    return seconds


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
    name: str,
    summary: str,
    *options: Callable[[Any], Any],
    panel: str,
    examples: Sequence[str],
    graph: bool = True,
) -> Callable[[Run], click.Command]:
    """Declare a verb of the shell.

    Args:
        examples: what a person types after the name.
        graph: it addresses one graph.
        panel: the heading under which the help lists it.
    """
    shared = (GRAPH, *options, OTHER_ADDRESSES, OUTPUT) if graph else (*options, OUTPUT)

    def declare(run: Run) -> click.Command:
        @together(*shared)
        def parsed(**values: Any) -> Parsed:
            return Parsed(name, values, run, graph)

        command: click.Command = cli.command(
            name,
            help=summary,
            short_help=summary.partition("\n")[0],
            # A paragraph each: rich joins the lines of one.
            epilog="\n\n".join(["Examples:", *(f"{PROGRAM} {name} {said}".rstrip() for said in examples)]),
            panel=panel,
            context_settings=CONTEXT,
        )(click.option_panel("Options")(parsed))
        return command

    return declare
