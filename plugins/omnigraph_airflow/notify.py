"""Tells people: the notifiers of a graphs file, imported when they are needed and not at every parse."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from airflow.sdk.definitions.callback import SyncCallback

if TYPE_CHECKING:
    from omnigraph_ops.config.graphs_file import Notifier

_log = logging.getLogger(__name__)


class Told:
    """A callback that constructs one notifier and calls it; one that fails fails nothing else."""

    def __init__(self, notifier: str, arguments: Mapping[str, Any]) -> None:
        self.notifier = notifier
        self.arguments = dict(arguments)

    def __call__(self, context: Any) -> None:
        """Send the message. Writes to wherever the notifier does."""
        try:
            module, _, name = self.notifier.rpartition(".")
            getattr(import_module(module), name)(**self.arguments)(context)
        except Exception as error:
            # The message names the class only: its arguments may hold an address that is a secret.
            _log.error("The notifier %s failed: %s", self.notifier, type(error).__name__)


def callbacks(notifiers: Sequence[Notifier]) -> list[Told]:
    """One callback per notifier. Pure."""
    return [Told(n.notifier, n.arguments) for n in notifiers]


def deadline_callback(notifiers: Sequence[Notifier]) -> SyncCallback:
    """The same for a deadline, which keeps its callback as text. Pure."""
    spelled = json.dumps([[n.notifier, n.arguments] for n in notifiers])
    return SyncCallback("omnigraph_airflow.notify.tell_all", kwargs={"notifiers": spelled})


def tell_all(notifiers: str, context: Any) -> None:
    """Call every notifier of a `deadline_callback`. Writes to wherever they do."""
    for notifier, arguments in json.loads(notifiers):
        Told(notifier, arguments)(context)
