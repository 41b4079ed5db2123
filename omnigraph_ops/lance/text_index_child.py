"""Write full-text indexes with whatever pylance this interpreter finds first; run as a script, never imported.

Reads one JSON request a line from standard input, each with an `id`, and answers each with one line:
`{"id": 1, "version": 7}`, with a description under `part` where it made a part of an index, or
`{"id": 1, "error": "..."}`. Requests run in threads of their own. The process ends with its standard input.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import pickle
import signal
import sys
import threading
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class _Unused(types.ModuleType):
    """Stands for a package of catalog clients, which is two thirds of the start of pylance and which no index needs."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__path__ = []

    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


class _NoPandas:
    """Hides pandas, which pyarrow imports wherever it is installed: half of the rest, in time and in memory."""

    @staticmethod
    def find_spec(name: str, _path: object = None, _target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("hidden: nothing here needs it", name=name)


_CORES_LEFT = 2
"""What Lance leaves to input and output."""


def threads(environment: Mapping[str, str], control_group: Path = Path("/sys/fs/cgroup/cpu.max")) -> int:
    """Threads for computing: as many as Lance takes, but never one. Reads.

    With one, which is what Lance 8 takes on up to three cores, it waits forever for itself once an index has some
    hundred thousand texts. Two are enough, however many indexes are written at once.
    """
    given = environment.get("LANCE_CPU_THREADS", "")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with contextlib.suppress(OSError, ValueError):
        quota, period = control_group.read_text(encoding="utf-8").split()
        cores = min(cores, -(-int(quota) // int(period)))
    return max(2, int(given) if given.isdecimal() else cores - _CORES_LEFT)


os.environ["LANCE_CPU_THREADS"] = str(threads(os.environ))
for _name in ("lance_namespace", "lance_namespace.errors", "lance_namespace_urllib3_client"):
    sys.modules[_name] = _Unused(_name)
sys.meta_path.insert(0, _NoPandas)

import lance  # noqa: E402 - after what it would import


def work(request: dict[str, Any]) -> dict[str, Any]:
    """Fold or build one index, or a part of one, or join such parts; what to answer. Writes."""
    dataset = lance.dataset(
        request["uri"], version=request["version"], storage_options=request["storage_options"] or None
    )
    name, column, parameters = request["name"], request.get("column", ""), request.get("parameters", {})
    match request["kind"]:
        case "fold":
            dataset.optimize.optimize_indices(index_names=[name], num_indices_to_merge=max(request["segments"], 1))
        case "part":
            part = dataset.create_index_uncommitted(
                column, "INVERTED", name=name, replace=True, fragment_ids=request["fragments"], **parameters
            )
            return {"version": int(dataset.version), "part": base64.b64encode(pickle.dumps(part)).decode()}
        case "join":
            parts = [pickle.loads(base64.b64decode(part)) for part in request["parts"]]
            joined = dataset.merge_existing_index_segments(parts)
            dataset.commit_existing_index_segments(name, column, [joined])
        case "build":
            dataset.create_scalar_index(column, "INVERTED", name=name, replace=True, **parameters)
        case unknown:
            raise ValueError(f"no such work: {unknown}")
    return {"version": int(dataset.version)}


def adopt(environment: dict[str, str]) -> None:
    """Know the stores as the parent knows them now."""
    for name in [name for name in os.environ if name.startswith("AWS_") and name not in environment]:
        del os.environ[name]
    for name, value in environment.items():
        if os.environ.get(name) != value:
            os.environ[name] = value


def main() -> None:
    """Answer requests until standard input ends. Writes."""
    # A service that is stopped signals all of its processes: this one ends with its parent, not before.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    # Only answers may go to the parent, whatever a native library prints.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    turn = threading.Lock()

    def answer(request: dict[str, Any]) -> None:
        try:
            said = work(request)
        except BaseException as error:
            # Panics of the native library are no `Exception`.
            said = {"error": str(error) or type(error).__name__}
        with turn:
            answers.write(json.dumps({"id": request["id"], **said}) + "\n")
            answers.flush()

    with turn:
        answers.write(json.dumps({"id": 0, "release": lance.__version__}) + "\n")
        answers.flush()
    for line in sys.stdin:
        request = json.loads(line)
        adopt(request.pop("environment"))
        threading.Thread(target=answer, args=(request,), daemon=True).start()
    # The parent is gone: what is under way has no reader, and a clone is removed by the next run.
    os._exit(0)


if __name__ == "__main__":
    main()
