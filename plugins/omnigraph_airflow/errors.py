"""The one place where errors of omnigraph_ops become Airflow's: retry, or fail without a retry.

TransientError, StorageError   raised as they are: Airflow retries
every other OpsError           AirflowFailException with its one sentence: a retry cannot help,
                               or (OutcomeUnknown) must not happen before somebody has looked
anything else                  AirflowFailException: a bug must not be run twice
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from airflow.sdk.exceptions import AirflowException, AirflowFailException

from omnigraph_ops.errors import OpsError, OutcomeUnknown, StorageError, TransientError


@contextlib.contextmanager
def airflow_errors() -> Iterator[None]:
    """Translate what a stage raises into what Airflow should do next. Pure."""
    try:
        yield
    except (AirflowException, TransientError, StorageError):
        raise
    except OutcomeUnknown as error:
        raise AirflowFailException(f"outcome unknown, run check before anything else: {error}") from error
    except OpsError as error:
        raise AirflowFailException(str(error)) from error
    except Exception as error:
        raise AirflowFailException(f"unexpected {type(error).__name__}: {error}") from error
