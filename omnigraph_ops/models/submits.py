"""What a submitted Spark application leaves for whoever submitted it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

V = TypeVar("V")


class SparkStage(StrEnum):
    """A stage whose heavy part the tasks of DAGs may submit."""

    REPAIR = "repair"
    ORPHANS = "orphans"
    EXPIRE_ROWS = "expire-rows"


class CalibratedJob(StrEnum):
    """A job for which `calibrate` measures from which size on it is faster than this process."""

    REWRITE = "rewrite"
    COPY = "copy"
    EVIDENCE = "evidence"
    ORPHANS = "orphans"
    EXPIRE = "expire"


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmitOutcome(Generic[V]):
    """The value of a job, or one sentence and whether the same submit may succeed later.

    It is empty as long as the job runs, and stays so when its driver is lost.
    """

    value: V | None = None
    """Of the type that the job returns."""
    error: str | None = None
    retryable: bool = True
