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
    │   │   └── TableGone       a table of the plan was dropped or renamed meanwhile
    │   ├── GraphFrozen         somebody froze the graph or the table; a backup may be reading it
    │   ├── ClockWrong          this host and the store disagree about the time, so no age can be told
    │   └── ApprovalMissing     a destructive step without the approval of its exact plan
    ├── TransientError          the same call may succeed later; nothing of ours was left behind
    │   ├── LeaseHeld           another maintenance run holds the committer lease
    │   └── PublishConflict     every retry of the publish lost against other writers
    ├── StorageError            the store refused or failed (permissions, connection)
    │   └── BucketMissing       the bucket does not exist; a retry does not help
    └── OutcomeUnknown          effects may have landed; re-read (`check`) before anything else

A class never authorises a blind replay: only `TransientError` may be retried as it is.

What others raise (Lance, stores, the system) becomes one line here, with what to do about it.
"""

from __future__ import annotations

import difflib
import errno
import re
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


class TableGone(StalePlan):
    """A table of the plan was dropped or renamed meanwhile."""


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


class BucketMissing(StorageError):
    """The bucket does not exist."""

    retryable = False


class OutcomeUnknown(OpsError):
    """Effects may have landed although the call failed; re-read before anything else."""


_MOST = 3
_MOST_TABLES = 10
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
    """The refusal of a table key, with tables that are there, of many the likest, and those that it may mean. Pure."""
    keys = sorted(known)
    named, more = keys, ""
    if len(keys) > _MOST_TABLES:
        named = difflib.get_close_matches(table_key, keys, n=_MOST_TABLES, cutoff=0)
        more = f", and {len(keys) - _MOST_TABLES:,} more"
    return UnknownTable(
        f"{where} has no table {table_key!r}; it has {', '.join(named) or 'none'}{more}; {untouched}"
        f"{did_you_mean(table_key, keys)}"
    )


_SOURCE = re.compile(r"[,;]?\s*(?:at )?(?:/|\b)[\w./+-]+\.rs:\d+(?::\d+)?")
"""Where Lance's own source raised an error: its text ends with one or more of these."""
_WRAPPED = re.compile(r"\b(?:External error|LanceError\(\w+\)|Generic N/A error|Wrapped error): ")
"""What Lance puts before the text of an error for each layer that it went through."""
_REPLY = re.compile(r"<\?xml.*?<Code>([^<]*)</Code>(?:\s*<Message>([^<]*)</Message>)?.*?(?:</Error>|$)", re.DOTALL)
"""What S3 answers, with the code and the message that say why. Some replies also have the id of the key."""
_OS_ERROR = re.compile(r"\(os error (\d+)\)")
"""How Lance names an error of the operating system."""
_NO_CREDENTIALS = re.compile(r"Unable to locate credentials|CredentialsNotLoaded|NoCredentialsError")
RIGHTS = "give this account the rights of docs/reference/rights.md, then run again"
"""What to do where rights are missing."""
_NO_SPACE = re.compile(r"No space left on device|quota exceeded", re.IGNORECASE)
_REMEDIES: tuple[tuple[re.Pattern[str], str], ...] = (
    (_NO_SPACE, "free space there, then run again"),
    (re.compile("Read-only file system"), "mount that file system writable, or name another place"),
    (
        # The reply to a HEAD request has no body, and so no code that tells these causes apart.
        re.compile("^(Forbidden|Bad Request)$"),
        "the store does not say why: check the key, the age of its session token, the region and the clock of this "
        "machine, then the rights of docs/reference/rights.md",
    ),
    (
        re.compile("InvalidAccessKeyId|SignatureDoesNotMatch|ExpiredToken|InvalidToken|RequestTimeTooSkewed"),
        "check the key and its secret, the age of its session token and the clock of this machine, then run again",
    ),
    (
        re.compile(r"Permission denied|Operation not permitted|Access ?Denied|\bForbidden\b", re.IGNORECASE),
        RIGHTS,
    ),
)


def tells_of_no_space(said: str) -> bool:
    """Whether an error, in words, has its cause in a disk that is full. Pure."""
    return _NO_SPACE.search(said) is not None


def first_line(error: BaseException) -> str:
    """The first line of an error, without the layers of Lance that it went through; the reason of S3. Pure."""
    said = _REPLY.sub(lambda reply: ": ".join(filter(None, reply.groups())), str(error))
    line = next(iter(said.strip().splitlines()), "")
    return _WRAPPED.sub("", _SOURCE.sub("", line)) or type(error).__name__


def reason_of(error: BaseException) -> str:
    """Why a store or a file system failed, what that did not harm, and what to do about it where that is known. Pure.

    The number and the path of an error of the operating system are left out: the caller names what it was at. No step
    of this tool loses rows where it ends by such an error.
    """
    text = first_line(error)
    if _NO_CREDENTIALS.search(text):
        return (
            "no credentials for S3 were found; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or "
            "give this machine a role; in Airflow, set `connection` of the graph's entry to a connection that has them"
        )
    if isinstance(error, OSError) and error.errno is not None and error.strerror:
        text = error.strerror
    remedy = next((remedy for pattern, remedy in _REMEDIES if pattern.search(text)), None)
    return text if remedy is None or text.endswith(remedy) else f"{text}; no row is lost; {remedy}"


_RIGHTS = {errno.EACCES, errno.EPERM, errno.EROFS}
_FINAL = {*_RIGHTS, errno.ENAMETOOLONG, errno.ENOTDIR, errno.ELOOP}


def lacks_rights(error: BaseException) -> bool:
    """Whether a file system refused for want of a right; a store may deny for a while. Pure."""
    return _is_any_of(error, _RIGHTS)


def is_final(error: BaseException) -> bool:
    """Whether a file system refused, for a right or for what a path is, which no repetition changes. Pure."""
    return _is_any_of(error, _FINAL)


def _is_any_of(error: BaseException, numbers: set[int]) -> bool:
    cause: BaseException | None = error
    while cause is not None:
        said = _OS_ERROR.search(str(cause))
        if (isinstance(cause, OSError) and cause.errno in numbers) or (said and int(said[1]) in numbers):
            return True
        cause = cause.__cause__
    return False
