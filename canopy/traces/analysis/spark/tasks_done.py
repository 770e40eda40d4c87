"""How far the Spark jobs that run are: tasks done of all, as Spark's status tracker says it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark import StatusTracker
    from pyspark.sql import SparkSession

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
