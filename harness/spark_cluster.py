"""A standalone Spark cluster on loopback: a master and workers, each a process of its own.

Spark's `local-cluster` would start executors as processes too, but master and workers as threads of
the driver, with one work folder. Here each worker has its own, and with `private` its own view of
the file system, as another machine would.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import pyspark

from canopy.traces.analysis.spark.java import find_java

PATIENCE: Final = 600.0
"""Seconds for a JVM to start and say so: ten times what it takes beside a load of ten."""

MASTER_AT: Final = re.compile(r"Starting Spark master at (spark://\S+)")
REGISTERED: Final = re.compile(r"Successfully registered with master")


def separates() -> bool:
    """Whether this process may give others a view of the file system of their own."""
    try:
        return subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode == 0
    except OSError:
        return False


class SparkCluster:
    """A master and `workers` workers, of one core each, with their files below `folder`.

    The folder `private`, if there is one, is an empty one of its own for each worker.
    """

    def __init__(self, folder: Path, workers: int = 2, private: Path | None = None) -> None:
        self.folder = folder
        self.url = ""
        self._count = workers
        self._private = private
        self._started: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> SparkCluster:
        try:
            master = ["org.apache.spark.deploy.master.Master", "--port", "0"]
            self.url = self._await("master", self._start("master", master), MASTER_AT)
            workers = [f"worker-{number}" for number in range(self._count)]
            started = [self._start(name, self._worker(name)) for name in workers]
            for name, process in zip(workers, started, strict=True):
                self._await(name, process, REGISTERED)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """End all processes, with the executors that the workers started."""
        for process in reversed(self._started):
            process.terminate()
        for process in reversed(self._started):
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=30)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # executors are in the worker's group
            process.wait()
        self._started.clear()

    def values(self, events: Path) -> dict[str, str]:
        """Settings of Spark with which a job runs here on all workers, logs to the folder `events`,
        and starts no task before every worker has an executor."""
        return {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.cores.max": str(self._count),
            "spark.executor.cores": "1",
            "spark.executor.memory": "1g",
            "spark.scheduler.minRegisteredResourcesRatio": "1.0",
            "spark.scheduler.maxRegisteredResourcesWaitingTime": f"{PATIENCE:.0f}s",
            "spark.eventLog.enabled": "true",
            "spark.eventLog.compress": "false",
            "spark.eventLog.rolling.enabled": "false",
            "spark.eventLog.dir": events.as_uri(),
        }

    def settings(self, events: Path) -> list[str]:
        """Arguments of a command with which its job does so."""
        values = self.values(events)
        given = [word for name in values for word in ("--conf", f"{name}={values[name]}")]
        return ["--master", self.url, *given]

    def executors(self) -> list[set[str]]:
        """The identities of the executors that each worker has started, by the folders that it made
        for them."""
        works = [self.folder / f"worker-{number}" / "work" for number in range(self._count)]
        return [{path.name for path in work.glob("app-*/*")} for work in works]

    def _worker(self, name: str) -> list[str]:
        work = str(self.folder / name / "work")
        size = ["--cores", "1", "--memory", "1g", "--work-dir", work]
        return ["org.apache.spark.deploy.worker.Worker", "--port", "0", *size, self.url]

    def _start(self, name: str, words: list[str]) -> subprocess.Popen[bytes]:
        folder = self.folder / name
        folder.mkdir(parents=True)
        home = Path(pyspark.__file__).parent
        command = [str(home / "bin" / "spark-class"), words[0], "--host", "127.0.0.1"]
        command += ["--webui-port", "0", *words[1:]]
        if self._private is not None and name != "master":
            mounted = f"mount -t tmpfs private {shlex.quote(str(self._private))}"
            command = ["unshare", "--mount", "sh", "-c", f"{mounted} && exec {shlex.join(command)}"]
        environment = {
            "SPARK_HOME": str(home),
            "JAVA_HOME": str(find_java().home(folder)),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": str(folder / "scratch"),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": "-Dspark.master.rest.enabled=false -XX:TieredStopAtLevel=1",
        }
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=os.environ | environment,
                start_new_session=True,
            )
        self._started.append(process)
        return process

    def _await(self, name: str, process: subprocess.Popen[bytes], said: re.Pattern[str]) -> str:
        """What the process writes into its log that fits `said`: the first group, or all."""
        until = time.monotonic() + PATIENCE
        log = self.folder / name / "log"
        while True:
            text = log.read_text(errors="replace")
            found = said.search(text)
            if found is not None:
                return found[found.re.groups]
            assert process.poll() is None, f"{name} has ended:\n{text[-2000:]}"
            assert time.monotonic() < until, f"{name} does not start:\n{text[-2000:]}"
            time.sleep(0.2)


def tasks_by_executor(events: Path) -> dict[str, int]:
    """How many tasks each executor ran, by the only log in the folder `events`."""
    (log,) = events.iterdir()
    ran: dict[str, int] = {}
    with log.open(encoding="utf-8") as lines:
        for line in lines:
            event: dict[str, Any] = json.loads(line)
            if event["Event"] == "SparkListenerTaskEnd":
                executor = event["Task Info"]["Executor ID"]
                ran[executor] = ran.get(executor, 0) + 1
    return ran
