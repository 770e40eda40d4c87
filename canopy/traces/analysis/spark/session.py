"""The Spark session of an analysis: without output, on loopback, and removed completely.

Without a master everything runs in a JVM of this process (`local[2]`): no web page, ports on
loopback only, few shuffle partitions, adaptive execution; for a small input (`ONE_TASK_BYTES`)
neither shuffles nor revised plans, and tables stay in memory (``tasks.py``). The JVM takes its
classes from an archive if there is one (``archive.py``). With a master
(`spark://…`, `yarn`) the same job runs there, and addresses and memory are left to the cluster; the
user's own settings replace any of these.

Spark prints from three places (the launcher's shell, the JVM, log4j). All of it goes to a log file
in a temporary folder, which also has the warehouse and the scratch files and is removed at the end.
If the JVM does not start, the error's message has the end of the log.
"""

from __future__ import annotations

import importlib.util
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import IO, TYPE_CHECKING, Any, Final

from canopy.traces.analysis.constants import (
    BLOCK_BYTES,
    LINE_BYTES,
    ONE_COMPILER_BYTES,
    ONE_TASK_BYTES,
    OPEN_BYTES,
    QUICK_BYTES,
    WRITERS,
)
from canopy.traces.analysis.errors import AnalysisError
from canopy.traces.analysis.spark.archive import NOTING, ClassArchive, cache_folder
from canopy.traces.analysis.spark.java import find_java
from canopy.traces.analysis.spark.scratch import scratch_folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EMPTY: Final[Mapping[str, str]] = MappingProxyType({})
JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"

LOCAL_MASTER: Final = "local[2]"
"""Two threads: a demo's traces are small, and a bigger run can name its own master."""

EVERYWHERE: Final[dict[str, str]] = {
    "spark.app.name": "canopy trace analyze",
    # SQL's own rules: overflow, division by zero and a bad cast give NULL, as in the selectors.
    "spark.sql.ansi.enabled": "false",
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.caseSensitive": "true",
    # Else `${...}` is replaced within every text of SQL, whoever wrote it.
    "spark.sql.variable.substitute": "false",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.files.openCostInBytes": str(OPEN_BYTES),
    "spark.sql.maxConcurrentOutputFileWriters": str(WRITERS),
    "spark.hadoop.parquet.block.size": str(BLOCK_BYTES),
    "spark.hadoop.mapreduce.input.linerecordreader.line.maxlength": str(LINE_BYTES),
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Every level of a selector's arithmetic takes the analyser one more round (its default is 100).
    "spark.sql.analyzer.maxIterations": "1000",
    # Generated code for hundreds of predicates in one projection exceeds the JVM's method size,
    # and then Spark falls back to its interpreter by itself, quietly.
    "spark.sql.codegen.fallback": "true",
}

LOCAL: Final[dict[str, str]] = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "2g",
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
}

LOCAL_FILES: Final[dict[str, str]] = {
    # Hadoop starts a `chmod` for each file and folder that it makes: no checksum files, no marks.
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
}

FIRST_JARS: Final = (
    *("spark-catalyst_*", "scala-library-*", "spark-core_*", "spark-sql-api_*", "spark-sql_*"),
    *("hadoop-client-api-*", "parquet-column-*", "jackson-databind-*", "log4j-core-*"),
)
"""Two thirds of all classes that an analysis loads are in these."""

QUICK: Final[dict[str, str]] = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}

ONE_TASK: Final[dict[str, str]] = {
    "spark.master": "local[1]",
    "spark.default.parallelism": "1",
    # What is inferred of a join's sides prunes rows that are few anyway.
    "spark.sql.constraintPropagation.enabled": "false",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.autoBroadcastJoinThreshold": "-1",  # a broadcast is a job of its own
    "spark.sql.shuffle.partitions": "1",
}

LOG4J: Final = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %p %c{1}: %m%n%ex
"""


def settings(
    master: str | None,
    scratch: Path,
    input_bytes: int,
    wishes: Mapping[str, str] = EMPTY,
    java: Sequence[str] = (),
) -> dict[str, str]:
    """All Spark settings of an analysis, by name; `wishes` are the user's, which come last, and
    `java` further options of the JVM."""
    # Selectors nest up to 128 levels (matching), and Spark's parser and optimiser recurse.
    options = [f"-Dlog4j2.configurationFile={(scratch / 'log4j2.properties').as_uri()}", "-Xss16m"]
    values = dict(EVERYWHERE)
    if master is None:
        # All that a JVM which is killed leaves behind is in `scratch`.
        options += [f"-Djava.io.tmpdir={scratch}", "-XX:-UsePerfData"]
        if input_bytes < ONE_COMPILER_BYTES:
            options.append("-XX:TieredStopAtLevel=1")
        if input_bytes < QUICK_BYTES:
            options.append("-XX:+UseSerialGC")
            values |= QUICK
        values |= LOCAL | LOCAL_FILES
        values["spark.driver.extraClassPath"] = first_jars()
        if input_bytes < ONE_TASK_BYTES:
            values |= ONE_TASK
        values["spark.local.dir"] = str(scratch)
    values.setdefault("spark.master", master or LOCAL_MASTER)
    values["spark.sql.warehouse.dir"] = (scratch / "warehouse").as_uri()
    options += [*java, wishes.get(JAVA_OPTIONS, "")]
    return values | dict(wishes) | {JAVA_OPTIONS: " ".join(options).strip()}


def first_jars() -> str:
    """The class path of `FIRST_JARS`, in front of Spark's: Java looks for each class in one of its
    280 jars after the other."""
    jars = jars_folder()
    if jars is None:
        return ""
    return os.pathsep.join(str(jar) for name in FIRST_JARS for jar in jars.glob(f"{name}.jar"))


def jars_folder() -> Path | None:
    """Where Spark's jars are, None if there is no Spark."""
    found = importlib.util.find_spec("pyspark")
    home = os.environ.get("SPARK_HOME") or (found and found.origin and Path(found.origin).parent)
    return Path(home) / "jars" if home else None


@contextmanager
def spark_session(
    master: str | None = None, input_bytes: int = 0, wishes: Mapping[str, str] = EMPTY
) -> Iterator[SparkSession]:
    """A Spark session within the `with`; its JVM ends and its files are removed afterwards.

    `master` is a cluster's URL, or None for this machine; `input_bytes` is the size of the input;
    `wishes` are Spark settings by name, which replace those of this module.
    Raises AnalysisError if there is no Java, or Spark does not start.
    """
    java = find_java()
    with scratch_folder() as scratch:
        (scratch / "log4j2.properties").write_text(LOG4J)
        environment = {
            "JAVA_HOME": str(java.home(scratch)),
            "PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON", sys.executable),
            # The JVM that only prints the command line of the other one.
            "SPARK_LAUNCHER_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto",
        }
        if master is None:
            environment["SPARK_LOCAL_IP"] = "127.0.0.1"
        log_path = scratch / "spark.log"
        with log_path.open("wb") as log, _environment(environment), _own_interrupts():
            archive = _archive(java.executable) if master is None else None
            options = archive.options() if archive is not None else []
            notes = any(each.startswith(NOTING) for each in options)
            values = settings(master, scratch, input_bytes, wishes, options)
            try:
                context, gateway = _start(values, log, log_path)
                try:
                    yield _session(context)
                    class_path = context._jvm.System.getProperty("java.class.path")
                finally:
                    # Where nothing is left to be written, ending a JVM in order is a second of
                    # processor time.
                    small = values.get("spark.sql.shuffle.partitions") == "1" and not wishes
                    _stop(context, gateway, at_once=small and not notes)
            except BaseException:
                if archive is not None:
                    archive.forget()
                raise
        if archive is not None:
            archive.make(class_path)


def _archive(executable: Path) -> ClassArchive | None:
    jars = jars_folder()
    if jars is None:
        return None
    try:
        return ClassArchive(cache_folder(), executable, jars.glob("*.jar"))
    except OSError:
        return None


def _start(values: dict[str, str], log: IO[bytes], log_path: Path) -> tuple[Any, Any]:
    try:
        from pyspark import SparkConf, SparkContext
        from pyspark.java_gateway import launch_gateway
        from pyspark.logger import PySparkLogger
    except ImportError as error:
        raise AnalysisError(
            f"the analysis needs pyspark: {error}. `make setup` installs it."
        ) from None
    if SparkContext._active_spark_context is not None:
        raise AnalysisError("a Spark session is open in this process already; stop it first")
    # It prints the Java stack of every failed query; `first_line` has what is needed.
    PySparkLogger.getLogger("SQLQueryContextLogger").disabled = True
    conf = SparkConf(loadDefaults=False)
    for name, value in values.items():
        conf.set(name, value)
    gateway = None
    try:
        launch: Any = launch_gateway
        gateway = launch(conf, {"stdout": log, "stderr": log})
        return SparkContext(conf=conf, gateway=gateway), gateway
    except Exception as error:
        if gateway is not None:
            _stop(None, gateway)
        log.flush()
        lines = log_path.read_text(errors="replace").strip().splitlines()
        output = "\n".join(lines[-5:]) or first_line(error)
        raise AnalysisError(
            f"Spark did not start (master {values['spark.master']}): {output}"
        ) from error


def _session(context: Any) -> SparkSession:
    """A session without the extensions that are on Spark's class path: MLlib's, which makes all of
    Scala's reflection be loaded. Java finds extensions by the class loader of the thread."""
    from pyspark.sql import SparkSession

    java = context._jvm.java.lang
    builder = context._jvm.org.apache.spark.sql.classic.SparkSession.builder()
    platform = java.ClassLoader.getPlatformClassLoader()
    thread = java.Thread.currentThread()
    before = thread.getContextClassLoader()
    thread.setContextClassLoader(platform)
    try:
        made = builder.getOrCreate()
    finally:
        thread.setContextClassLoader(before)
    return SparkSession(context, made)


def _stop(context: Any, gateway: Any, *, at_once: bool = False) -> None:
    """End the session and its JVM: in order, or `at_once`, which saves the JVM's own tidying up."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    if context is not None:
        if at_once:
            context._jsc = None  # of the context only what this process has of it is closed
        context.stop()
    SparkSession._instantiatedSession = None
    process: subprocess.Popen[bytes] | None = getattr(gateway, "proc", None)
    gateway.shutdown()
    if at_once and process is not None:
        process.kill()
    SparkContext._gateway = None
    SparkContext._jvm = None
    if process is not None:
        assert process.stdin is not None
        process.stdin.close()  # the JVM ends when its standard input does
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    """Environment variables that Spark's launcher reads, set for the time of the `with`."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def _own_interrupts() -> Iterator[None]:
    """Restore the handler of SIGINT afterwards, which pyspark replaces."""
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if before is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, before)


def first_line(error: BaseException) -> str:
    """The message of a Spark exception as one line, without the Java stack."""
    text = str(error).strip()
    caused = re.search(r"Caused by: (.+)", text)
    line = caused.group(1) if caused else text.splitlines()[0] if text else type(error).__name__
    return line[:500]
