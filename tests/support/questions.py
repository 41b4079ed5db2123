"""Airflow's side of a question to a person, without its database."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from uuid import NAMESPACE_OID, uuid5

import pytest

from omnigraph_ops.coordination.state import CONSENTS_DIR
from omnigraph_ops.storage.store import Storage
from tests.support.edges import when_asked


def id_of(attempt: str) -> str:
    """The id that Airflow gives to an attempt of a task. Pure."""
    return str(uuid5(NAMESPACE_OID, attempt))


def keeps_question(patch: pytest.MonkeyPatch, shown: str | None = None, *users: str) -> None:
    """Let Airflow show a question: the text that it got first, whatever it gets when its task is cleared or repeated.

    Args:
        shown: the text that it has already.
        users: who may answer it.
    """
    from airflow.sdk.execution_time import task_runner

    patch.setattr(task_runner, "SUPERVISOR_COMMS", _Supervisor(shown, users), raising=False)


class _Supervisor:
    def __init__(self, shown: str | None, users: Sequence[str]) -> None:
        self._shown = shown
        self._users = users

    def send(self, asked: Any) -> Any:
        from airflow.sdk.api.datamodels._generated import HITLUser
        from airflow.sdk.execution_time.comms import HITLDetailRequestResult

        self._shown = self._shown or asked.body
        return HITLDetailRequestResult(
            ti_id=asked.ti_id,
            options=asked.options,
            subject=asked.subject,
            body=self._shown,
            assigned_users=[HITLUser(id=name, name=name) for name in self._users] or None,
        )


def when_kept(patch: pytest.MonkeyPatch, storage: Storage, task_id: str, act: Callable[[str], object]) -> None:
    """Call `act` with the path whenever what the graph keeps of the question of that task was written."""

    def look() -> None:
        for path in (f"{CONSENTS_DIR}/{name}" for name in storage.list(CONSENTS_DIR)):
            if f'"{task_id}"'.encode() in storage.read(path):
                act(path)

    when_asked(patch, Storage, "write", look, about=f"^{CONSENTS_DIR}/", times=None, after=True)
