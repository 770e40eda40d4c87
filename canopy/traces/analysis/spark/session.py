"""The Spark session of an analysis: without output, on loopback, and removed completely.

Without a master everything runs in a JVM of this process (`local[2]`): no web page, ports on
loopback only, few shuffle partitions, adaptive execution; for a small input (`ONE_TASK_BYTES`)
neither shuffles nor revised plans, and tables stay in memory (``tasks.py``). The JVM takes its
classes from an archive if there is one (`ClassArchive`). With a master
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
import secrets
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from types import MappingProxyType
from typing import IO, TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from canopy.traces.analysis.constants import (
    ARCHIVE_SECONDS,
    ARCHIVES_KEPT,
    BLOCK_BYTES,
    LINE_BYTES,
    ONE_COMPILER_BYTES,
    ONE_TASK_BYTES,
    OPEN_BYTES,
    PARTITION_BYTES,
    QUICK_BYTES,
    WRITERS,
    AnalysisError,
)
from canopy.traces.analysis.spark.java import find_java
from canopy.traces.analysis.spark.paths import for_reading, scratch_folder

if TYPE_CHECKING:
    from pyspark import StatusTracker
    from pyspark.sql import SparkSession


# An archive of the classes that an analysis loads (class data sharing), in the user's cache.
#
# Loading some 16,000 classes is a third of what a small analysis costs. The JVM can map them from
# an archive instead, if that was made by the same Java for the same jars. The first analysis notes
# which classes it loads; when it has ended, a process of the lowest priority makes the archive of
# them, and analyses from then on use it. Without a cache that can be written, or with an archive
# that does not fit, the JVM loads the classes from the jars.

NOTING: Final = "-XX:DumpLoadedClassList="
"""The JVM's option for a file of the classes that it loads, which is whole when the JVM has ended
in order."""

MAKE: Final = """\
nice -n 19 "$1" -Xshare:dump -XX:+UseSerialGC "-XX:SharedClassListFile=$2" \
"-XX:SharedArchiveFile=$3" -cp "$4" && mv -f "$3" "$5"
rm -f "$2" "$3"
"""
"""A shell's commands: java, list, draft, class path, archive."""


def cache_folder() -> Path:
    """The folder of the archives: ``$XDG_CACHE_HOME/canopy/java``, else under ``~/.cache``."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "canopy" / "java"


class ClassArchive:
    """The archive for the Java `executable` and the files `jars`, in `folder`."""

    def __init__(self, folder: Path, executable: Path, jars: Iterable[Path]) -> None:
        self._folder = folder
        self._java = executable
        name = blake2b(digest_size=12)
        for path in (executable, *sorted(jars)):
            found = path.stat()
            name.update(f"{path} {found.st_size} {found.st_mtime_ns}\n".encode())
        self.path = folder / f"{name.hexdigest()}.jsa"
        self._classes = self.path.with_suffix(f".{os.getpid()}.classes")

    def options(self) -> list[str]:
        """The JVM's options that use the archive, or note the classes for one; none if this cannot
        be done here."""
        if " " in str(self._folder):  # the options of a JVM are one text
            return []
        try:
            if self.path.is_file():
                os.utime(self.path)  # it is in use
                return [f"-XX:SharedArchiveFile={self.path}"]
            if os.name != "posix" or self._is_being_made():
                return []
            self._folder.mkdir(parents=True, exist_ok=True)
            self._classes.touch()
        except OSError:
            return []
        return [f"{NOTING}{self._classes}"]

    def _is_being_made(self) -> bool:
        """Whether another analysis notes classes, or a process makes the archive."""
        oldest = time.time() - ARCHIVE_SECONDS
        drafts = self._folder.glob(f"{self.path.stem}.*.classes")
        return any(path.stat().st_mtime > oldest for path in drafts)

    def make(self, class_path: str) -> subprocess.Popen[bytes] | None:
        """Start to make the archive of the classes that were noted from the `class_path`; None if
        none were. The process needs half a minute, and goes on when this one ends."""
        try:
            if not self._classes.is_file() or not self._classes.stat().st_size:
                return None
            others = sorted(self._folder.glob("*.jsa"), key=lambda path: -path.stat().st_mtime)
            for path in others[ARCHIVES_KEPT - 1 :]:
                path.unlink()
            draft = self.path.with_suffix(f".{os.getpid()}.draft")
            paths = (self._java, self._classes, draft, class_path, self.path)
            return subprocess.Popen(
                [shutil.which("sh") or "/bin/sh", "-c", MAKE, "sh", *map(str, paths)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError:
            return None

    def forget(self) -> None:
        """Remove the noted classes of an analysis that failed."""
        with suppress(OSError):
            self._classes.unlink(missing_ok=True)


# How far the Spark jobs that run are: tasks done of all, as Spark's status tracker says it.

OnTasks = Callable[[int, int], None]
"""Called in a thread of its own, with (tasks done, all tasks) of the Spark stages that were seen so
far; a stage that came and went between two looks is in neither."""

TASK_INTERVAL: Final = 0.5  # seconds between two looks, which take some calls of the JVM each
JOIN_TIMEOUT: Final = 5.0  # seconds for a look to end


@contextmanager
def watched_tasks(
    spark: SparkSession, on_tasks: OnTasks | None, interval: float = TASK_INTERVAL
) -> Iterator[None]:
    """Call `on_tasks` while jobs run within the `with`; without one nothing is done."""
    if on_tasks is None:
        yield
        return
    tracker = spark.sparkContext.statusTracker()
    ended = threading.Event()
    thread = threading.Thread(
        target=_watch, args=(tracker, on_tasks, ended, interval), daemon=True, name="spark tasks"
    )
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(JOIN_TIMEOUT)


def _watch(
    tracker: StatusTracker, on_tasks: OnTasks, ended: threading.Event, interval: float
) -> None:
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]

    running: dict[int, int] = {}  # tasks of the stages that ran at the last look
    over = 0  # tasks of those that have ended since
    while not ended.wait(interval):
        try:
            found = {stage: tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()}
        except (Py4JError, OSError):  # the session has ended
            return
        stages = {stage: each for stage, each in found.items() if each is not None}
        over += sum(tasks for stage, tasks in running.items() if stage not in stages)
        running = {stage: each.numTasks for stage, each in stages.items()}
        if running and not ended.is_set():
            done = sum(each.numCompletedTasks for each in stages.values())
            on_tasks(over + done, over + sum(running.values()))


# --- whether the machines of a cluster see a folder as this process does ---
#
# Each executor writes its part of a table into its own `/tmp/report` if that is no shared folder,
# and the tables are empty where this process reads them.

FOLDER: Final = "canopy-probe"
"""Made in the folder that is looked at, and removed."""

ROUNDS: Final = 4
"""Tasks per core, so that every executor gets some. Guess."""

OPEN_COST: Final = "spark.sql.files.openCostInBytes"
MOST_BYTES: Final = "spark.sql.files.maxPartitionBytes"


def check_shared(spark: SparkSession, folder: Path) -> None:
    """Raise AnalysisError unless all executors see the files that this process writes into
    `folder`."""
    if str(spark.sparkContext.master).startswith("local"):
        return
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    count = ROUNDS * max(spark.sparkContext.defaultParallelism, 1)
    words = [secrets.token_hex(8) for _ in range(count)]
    before, most = (str(spark.conf.get(name)) for name in (OPEN_COST, MOST_BYTES))
    probe = folder / FOLDER
    try:
        probe.mkdir()
        for word in words:
            (probe / f"{word}.txt").write_text(word)
        spark.conf.set(OPEN_COST, most)  # a task for each
        seen = {row["value"] for row in spark.read.text(for_reading(probe)).collect()}
    except (Py4JError, PySparkException):
        seen = set()
    finally:
        spark.conf.set(OPEN_COST, before)
        shutil.rmtree(probe, ignore_errors=True)
    if seen != set(words):
        raise AnalysisError(
            f"the output folder {folder} is not the same one on the machines of the cluster: what "
            "this process wrote there they do not see; name a folder on a file system that they "
            "share"
        )


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
    values["spark.sql.shuffle.partitions"] = str(max(2, input_bytes // PARTITION_BYTES))
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
    """Return the folder of Spark's jars; None without Spark."""
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
            values = settings(master, scratch, input_bytes, wishes, options)
            try:
                spark, gateway = _start(values, log, log_path)
                try:
                    _JVMS[spark] = gateway.jvm
                    yield spark
                    class_path = gateway.jvm.System.getProperty("java.class.path")
                finally:
                    notes = any(each.startswith(NOTING) for each in options)
                    _stop(spark, gateway, at_once=not notes)
            except BaseException:
                if archive is not None:
                    archive.forget()
                raise
        if archive is not None:
            archive.make(class_path)


_JVMS: Final[MutableMapping[SparkSession, Any]] = WeakKeyDictionary()


def jvm_of(spark: SparkSession) -> Any:
    """Py4J's view of the JVM in which a session of `spark_session` runs."""
    return _JVMS[spark]


def _archive(executable: Path) -> ClassArchive | None:
    jars = jars_folder()
    if jars is None:
        return None
    try:
        return ClassArchive(cache_folder(), executable, jars.glob("*.jar"))
    except OSError:
        return None


def _start(values: dict[str, str], log: IO[bytes], log_path: Path) -> tuple[SparkSession, Any]:
    """Start a JVM and a session in it. Returns the session and Py4J's gateway to the JVM."""
    try:
        from pyspark import SparkConf, SparkContext
        from pyspark.java_gateway import launch_gateway
        from pyspark.logger import PySparkLogger
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise AnalysisError(
            f"the analysis needs pyspark: {error}. `make setup` installs it."
        ) from None
    if SparkSession.getActiveSession() is not None:
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
        SparkContext(conf=conf, gateway=gateway)
        return SparkSession.builder.getOrCreate(), gateway
    except Exception as error:
        if gateway is not None:
            _stop(None, gateway)
        log.flush()
        lines = log_path.read_text(errors="replace").strip().splitlines()
        output = "\n".join(lines[-5:]) or first_line(error)
        raise AnalysisError(
            f"Spark did not start (master {values['spark.master']}): {output}"
        ) from error


def _stop(spark: SparkSession | None, gateway: Any, *, at_once: bool = True) -> None:
    """End the session, and its JVM in order or `at_once`: the session has removed its files, and
    the JVM's own tidying up is a second of processor time."""
    from pyspark import SparkContext

    if spark is not None:
        spark.stop()
    gateway.shutdown()
    # PySpark has no public way to start another JVM in the same process.
    SparkContext._gateway = SparkContext._jvm = None
    process: subprocess.Popen[bytes] = gateway.proc
    assert process.stdin is not None
    process.stdin.close()  # the JVM ends when its standard input does
    if not at_once:
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=10)
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


@contextmanager
def job_errors() -> Iterator[None]:
    """Turn the errors of Spark into an AnalysisError of one line."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (Py4JError, PySparkException) as error:
        raise AnalysisError(f"the Spark job failed: {first_line(error)}") from error


def first_line(error: BaseException) -> str:
    """The message of a Spark exception as one line, without the Java stack."""
    text = str(error).strip()
    caused = re.search(r"Caused by: (.+)", text)
    line = caused.group(1) if caused else text.splitlines()[0] if text else type(error).__name__
    return line[:500]
