"""The error tree is what its documentation says, and errors survive a trip between processes."""

from __future__ import annotations

import pickle
import re

import pytest

from omnigraph_ops import errors
from omnigraph_ops.lance import gateway as lance_errors
from omnigraph_ops.lance.gateway import (
    CommitConflict,
    CommitContention,
    DatasetMissing,
    IncompatibleCommit,
    LanceFailure,
)
from omnigraph_ops.storage.store import translated

CLASSES = [c for c in vars(errors).values() if isinstance(c, type) and issubclass(c, errors.OpsError)]
LANCE = [c for c in vars(lance_errors).values() if isinstance(c, type) and issubclass(c, LanceFailure)]


def documented(text: str) -> dict[str, str | None]:
    """Class to parent, from the drawing in a docstring."""
    parents: list[tuple[int, str]] = []
    found: dict[str, str | None] = {}
    for line in text.splitlines():
        match = re.match(r"([ │├└─]*)([A-Z][A-Za-z]+)(?:\(\w+\))?(?:  |$)", line)
        if match is None:
            continue
        depth = len(match.group(1))
        parents = [p for p in parents if p[0] < depth]
        found[match.group(2)] = parents[-1][1] if parents else None
        parents.append((depth, match.group(2)))
    return found


def test_the_tree_is_the_documented_one() -> None:
    assert documented(errors.__doc__ or "") == {
        c.__name__: None if c is errors.OpsError else c.__base__.__name__ for c in CLASSES if c.__base__
    }


def test_lances_tree_is_the_documented_one() -> None:
    drawn = documented(lance_errors.__doc__ or "")
    assert drawn == {c.__name__: None if c is LanceFailure else "LanceFailure" for c in LANCE}


@pytest.mark.parametrize("error", [*CLASSES, *LANCE], ids=lambda c: c.__name__)
def test_every_error_survives_pickling(error: type[errors.OpsError]) -> None:
    copy = pickle.loads(pickle.dumps(error("one sentence")))
    assert (type(copy), str(copy), copy.exit_code) == (error, "one sentence", error.exit_code)


def test_only_usage_exits_with_two() -> None:
    assert {c.__name__ for c in CLASSES if c.exit_code != 1} == {"UsageError"}


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Too many concurrent writers. Attempted 0 retries.", CommitContention),
        ("Retryable commit conflict for version 4: This Rewrite transaction was preempted", CommitConflict),
        ("Commit conflict for version 4: replace fragment id=0 more than once", CommitConflict),
        ("Incompatible transaction: This ReserveFragments transaction is incompatible", IncompatibleCommit),
        ("Dataset at path x was not found", DatasetMissing),
        ("Not found: /x/_versions", DatasetMissing),
        ("disk on fire", LanceFailure),
    ],
)
def test_lances_texts_become_types(text: str, kind: type[LanceFailure]) -> None:
    with pytest.raises(LanceFailure) as raised, lance_errors.lance_errors("do it"):
        raise OSError(text + "\nsecond line")
    assert type(raised.value) is kind
    assert str(raised.value) == f"cannot do it: {text}"


def test_a_panic_is_a_failure_and_an_interrupt_is_not() -> None:
    panic = type("PanicException", (BaseException,), {})
    with pytest.raises(LanceFailure, match="index out of bounds"), lance_errors.lance_errors("do it"):
        raise panic("index out of bounds")
    with pytest.raises(KeyboardInterrupt), lance_errors.lance_errors("do it"):
        raise KeyboardInterrupt


def test_what_a_store_raises_is_a_storage_error_and_a_bug_stays_one() -> None:
    from botocore.exceptions import NoCredentialsError

    with (
        pytest.raises(errors.StorageError, match=r"cannot read s3://b/x: .*credentials"),
        translated("read", "s3://b/x"),
    ):
        raise NoCredentialsError
    with pytest.raises(KeyError), translated("read", "x"):
        raise KeyError("a bug")
    with pytest.raises(FileNotFoundError), translated("read", "x"):
        raise FileNotFoundError


_DENIED = (
    '<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>InvalidAccessKeyId</Code><Message>The AWS Access Key Id you '
    "provided does not exist in our records.</Message><AWSAccessKeyId>canary</AWSAccessKeyId></Error>"
)


@pytest.mark.parametrize("reply", [_DENIED, _DENIED.replace("\n", ""), _DENIED.removesuffix("</Error>")])
def test_of_a_reply_of_s3_its_reason_is_told_and_no_key(reply: str) -> None:
    said = errors.reason_of(OSError(f"Generic S3 error: Client error with status 403 Forbidden: {reply}"))
    assert "403 Forbidden: InvalidAccessKeyId: The AWS Access Key Id you provided does not exist" in said
    assert said.endswith(
        "; check the key and its secret, the age of its session token and the clock of this machine, then run again"
    )
    assert "canary" not in said


def test_a_right_that_is_missing_is_told_by_its_code() -> None:
    reply = "<?xml version='1.0'?><Error><Code>AccessDenied</Code></Error>"
    said = errors.reason_of(OSError(f"Client error with status 403 Forbidden: {reply}"))
    assert "Forbidden: AccessDenied; no row is lost; give this account the rights" in said


def test_of_many_tables_the_likest_are_named() -> None:
    """Of a graph of 300 tables all 300 were named in one line."""
    known = [*(f"edge:E{number:03}" for number in range(300)), "node:Person", "node:Personnel"]
    told = str(errors.unknown_table("/g", "node:Persn", known, "nothing was deleted"))
    assert told.startswith("/g has no table 'node:Persn'; it has node:Person, node:Personnel, ")
    assert told.endswith(", and 292 more; nothing was deleted; did you mean 'node:Person' or 'node:Personnel'?")
    assert told.count("edge:") == 8
    few = str(errors.unknown_table("/g", "node:X", reversed(known[:10]), "nothing was deleted"))
    assert f"it has {', '.join(known[:10])}; nothing was deleted" in few
