"""A notifier that writes down whom it told about what."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from airflow.sdk.bases.notifier import BaseNotifier


class Noted(BaseNotifier):
    """Appends its rendered message to a file."""

    template_fields = ("message",)

    def __init__(self, *, file: str, message: str = "{{ dag_run.dag_id }}") -> None:
        super().__init__()
        self.file = file
        self.message = message

    def notify(self, context: Any) -> None:
        with Path(self.file).open("a") as handle:
            handle.write(f"{self.message}\n")
