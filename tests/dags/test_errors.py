"""Every error of omnigraph_ops becomes exactly one of: retry, or fail without a retry."""

from __future__ import annotations

import errno
from collections.abc import Iterator

import pytest

from omnigraph_ops import errors
from omnigraph_ops.storage.store import translated
from tests.support.runs import Instance

pytestmark = [pytest.mark.airflow, pytest.mark.xdist_group("airflow")]


def _tree(cls: type[errors.OpsError]) -> Iterator[type[errors.OpsError]]:
    yield cls
    for child in cls.__subclasses__():
        yield from _tree(child)


_ERRORS = sorted(set(_tree(errors.OpsError)), key=lambda c: c.__name__)


@pytest.mark.parametrize("cls", _ERRORS)
def test_only_what_may_succeed_later_is_retried(cls: type[errors.OpsError]) -> None:
    from airflow.sdk.exceptions import AirflowFailException
    from omnigraph_airflow.task_run import airflow_errors

    expected = cls if cls.retryable else AirflowFailException
    with pytest.raises(expected, match="one sentence"), airflow_errors():
        raise cls("one sentence")


@pytest.mark.parametrize(
    ("cause", "retried"),
    [
        (OSError(errno.EACCES, "Permission denied"), False),
        (OSError(errno.ENAMETOOLONG, "File name too long"), False),
        (OSError("Not a directory (os error 20)"), False),
        (OSError(errno.ELOOP, "Too many levels of symbolic links"), False),
        (OSError(errno.EPERM, "Operation not permitted"), False),
        (OSError(errno.EROFS, "Read-only file system"), False),
        (OSError("LanceError(IO): cannot write: Permission denied (os error 13)"), False),
        (OSError(errno.ENOSPC, "No space left on device"), True),
        (OSError("Forbidden"), True),
        # A role whose service does not answer for a moment looks like none.
        (OSError("Unable to locate credentials"), True),
    ],
)
def test_rights_that_are_missing_on_a_disk_do_not_come_by_themselves(cause: OSError, *, retried: bool) -> None:
    from airflow.sdk.exceptions import AirflowFailException
    from omnigraph_airflow.task_run import airflow_errors

    expected = errors.StorageError if retried else AirflowFailException
    with pytest.raises(expected, match="cannot write here"), airflow_errors(), translated("write", "here"):
        raise cause


def test_a_bug_is_not_run_twice() -> None:
    from airflow.sdk.exceptions import AirflowFailException
    from omnigraph_airflow.task_run import airflow_errors

    with pytest.raises(AirflowFailException, match="unexpected KeyError"), airflow_errors():
        raise KeyError("x")


def test_airflows_own_signals_pass() -> None:
    from airflow.sdk.exceptions import AirflowSkipException
    from omnigraph_airflow.task_run import airflow_errors

    with pytest.raises(AirflowSkipException), airflow_errors():
        raise AirflowSkipException("nothing to do")


@pytest.mark.parametrize(
    "signal", ["AirflowSkipException", "AirflowRescheduleException", "DownstreamTasksSkipped", "TaskAwaitingInput"]
)
def test_a_skip_and_a_wait_leave_no_sentence(signal: str) -> None:
    from airflow.sdk import exceptions
    from omnigraph_airflow.operators.base import failures_told

    raised = exceptions.__dict__[signal]
    instance = Instance("plan")
    with pytest.raises(raised), failures_told({"ti": instance}):  # type: ignore[typeddict-item]
        raise raised.__new__(raised)
    assert instance.pushed == {}


@pytest.mark.parametrize("kind", ["AirflowSkipException", "StageSkipped"])
def test_the_log_of_a_task_that_skips_says_why(caplog: pytest.LogCaptureFixture, kind: str) -> None:
    from omnigraph_airflow import task_run
    from omnigraph_airflow.operators.base import failures_told

    raised = vars(task_run)[kind]
    with caplog.at_level("INFO"), pytest.raises(raised), failures_told({"ti": Instance("plan")}):  # type: ignore[typeddict-item]
        raise raised("no plan was made")
    assert "no plan was made" in caplog.text


def test_a_failure_leaves_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever may read the run sees what its tasks left, and a store may repeat what it was sent."""
    from omnigraph_airflow.operators.base import failures_told

    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI")
    instance = Instance("optimize_table")
    with pytest.raises(errors.StorageError), failures_told({"ti": instance}):  # type: ignore[typeddict-item]
        raise errors.StorageError('refused: key wJalrXUtnFEMI, token="abc"')
    assert [f["message"] for f in instance.pushed["failure"]] == ['refused: key ***, token="***"']


def test_a_failure_leaves_its_sentence_and_its_table() -> None:
    from omnigraph_airflow.operators.base import failures_told

    instance = Instance("submit_rewrite", 2)
    with pytest.raises(errors.StorageError), failures_told({"ti": instance}, "node:A"):  # type: ignore[typeddict-item]
        raise errors.StorageError("the store is away")
    assert instance.pushed["failure"] == [
        {
            "task_id": "submit_rewrite",
            "table_key": "node:A",
            "message": "the store is away",
            "map_index": 2,
            "try_number": 1,
        }
    ]
