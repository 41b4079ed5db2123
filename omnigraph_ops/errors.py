"""Every error this package raises on purpose, classified by what the caller may do next.

    OpsError                    exit code 1; the message is one sentence for a person
    ├── UsageError              the command line does not hold together (exit code 2); nothing was read
    ├── NotInstalled            a package of an extra is missing on this machine; nothing was written
    ├── InvalidInput            a value, file or setting that was given is malformed; nothing was written
    ├── GraphError              the target is not a graph this tool may touch; nothing was written
    │   ├── NotAGraph           no Omnigraph graph at that path
    │   ├── UnsupportedStamp    a graph of a generation this tool does not maintain
    │   ├── UnknownTable        no live table of that key
    │   ├── ContractError       schema files missing, corrupt or disagreeing
    │   └── CorruptGraph        the graph manifest or a table cannot be read as specified
    ├── OperatorNeeded          a person (or the engine) has to act first; nothing was written
    │   ├── RecoveryPending     a recovery sidecar, staging file or schema-apply lock is present
    │   │   └── RecoveryNeeded  it is of a run of ours that ended: nothing but `recover` removes it
    │   ├── DriftFound          the Lance HEAD is not what the graph manifest publishes
    │   ├── StalePlan           the graph moved since the plan was made
    │   ├── GraphFrozen         somebody froze the graph or the table; a backup may be reading it
    │   ├── ClockWrong          this host and the store disagree about the time, so no age can be told
    │   └── ApprovalMissing     a destructive step without the approval of its exact plan
    ├── TransientError          the same call may succeed later; nothing of ours was left behind
    │   ├── LeaseHeld           another maintenance run holds the committer lease
    │   └── PublishConflict     every retry of the publish lost against other writers
    ├── StorageError            the store refused or failed (permissions, connection)
    └── OutcomeUnknown          effects may have landed; re-read (`check`) before anything else

A class never authorises a blind replay: only `TransientError` may be retried as it is.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class OpsError(Exception):
    """Base of all errors raised on purpose; the message is written for a person."""

    exit_code = 1
    retryable = False
    """Whether the same work may succeed later without anybody's help."""


class UsageError(OpsError):
    """The command line does not hold together."""

    exit_code = 2


class NotInstalled(OpsError):
    """A package of an extra is missing on this machine."""

    @classmethod
    def of(cls, purpose: str, package: str, extra: str) -> NotInstalled:
        """The error for something that needs a package of an extra of the wheel. Pure."""
        return cls(f'{purpose} needs {package}, which is not installed: run pip install "omnigraph-ops[{extra}]"')


class InvalidInput(OpsError):
    """A value, file or setting that was given is malformed."""


class GraphError(OpsError):
    """The target is not a graph this tool may touch."""


class NotAGraph(GraphError):
    """No Omnigraph graph at that path."""


class UnsupportedStamp(GraphError):
    """The graph belongs to a generation this tool does not maintain."""


class UnknownTable(GraphError):
    """No live table of that key."""


class ContractError(GraphError):
    """Schema files are missing, corrupt or disagree."""


class CorruptGraph(GraphError):
    """The graph manifest or a table cannot be read as the format specifies."""


class OperatorNeeded(OpsError):
    """A person, or the engine, has to act first."""


class RecoveryPending(OperatorNeeded):
    """A recovery sidecar, a schema staging file or the schema-apply lock is present."""

    def __init__(self, message: str, *, sidecars: frozenset[str] = frozenset()) -> None:
        super().__init__(message)
        self.sidecars = sidecars
        """Names of the files of those that are pending; empty where it is about something else."""


class RecoveryNeeded(RecoveryPending):
    """A sidecar of a run of ours that ended is present: to wait for its end is in vain."""


class DriftFound(OperatorNeeded):
    """The Lance HEAD is not what the graph manifest publishes."""


class StalePlan(OperatorNeeded):
    """The graph moved since the plan was made."""


class GraphFrozen(OperatorNeeded):
    """Somebody froze the graph or the table."""


class ClockWrong(OperatorNeeded):
    """This host and the store disagree about the time."""


class ApprovalMissing(OperatorNeeded):
    """A destructive step was called without the approval of its exact plan."""


class TransientError(OpsError):
    """The same call may succeed later; nothing of ours was left behind."""

    retryable = True


class LeaseHeld(TransientError):
    """Another maintenance run holds the committer lease."""


class PublishConflict(TransientError):
    """Every retry of a publish lost against other writers."""


class StorageError(OpsError):
    """The object store refused or failed."""

    retryable = True


class OutcomeUnknown(OpsError):
    """Effects may have landed although the call failed; re-read before anything else."""


_MOST = 3
_LIKENESS = 0.7
"""Below it `node:Foo` would be taken for `node:Bar`."""


def did_you_mean(word: str, known: Iterable[str], *, prefix: str = "") -> str:
    """`; did you mean 'optimize'?` for a word that is nearly a known one, else nothing. Pure.

    Args:
        prefix: what all of them begin with, which makes none of them like another.
    """
    by_folded = {name.removeprefix(prefix).casefold(): name for name in known}
    close = difflib.get_close_matches(word.removeprefix(prefix).casefold(), by_folded, n=_MOST, cutoff=_LIKENESS)
    named = [repr(by_folded[found]) for found in close]
    return f"; did you mean {' or '.join(named)}?" if named else ""


def unknown_table(where: str, table_key: str, known: Iterable[str], untouched: str) -> UnknownTable:
    """The refusal of a table key, with the tables that are there and those that it may mean. Pure."""
    keys = sorted(known)
    return UnknownTable(
        f"{where} has no table {table_key!r}; it has {', '.join(keys) or 'none'}; {untouched}"
        f"{did_you_mean(table_key, keys)}"
    )
