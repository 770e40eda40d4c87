"""How many tasks Spark makes of a run: of a small one a single task per job, on rows in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def in_one_task(frame: DataFrame) -> DataFrame:
    """`frame` in one partition where the session has one (`ONE_TASK` in ``spark/session.py``).

    Spark shuffles nothing that it knows to be in one partition. It does not know that after
    reading, after a union, and after an inner or full join.
    """
    return frame.coalesce(1) if is_small(frame) else frame


def kept(frame: DataFrame) -> DataFrame:
    """`frame`, a table, whose rows are read once and then kept in memory where the run is small.

    There, opening all of a table's files is most of what each job that reads it does.
    """
    return _in_memory(frame) if is_small(frame) else frame


def computed_once(frame: DataFrame) -> DataFrame:
    """`frame`, whose rows are computed by the first job that needs them.

    Spark compiles Java for the columns of its own cache, which a small run need not pay for.
    """
    return _in_memory(frame) if is_small(frame) else frame.cache()


def _in_memory(frame: DataFrame) -> DataFrame:
    return frame.coalesce(1).localCheckpoint(eager=False)


def is_small(frame: DataFrame) -> bool:
    """Whether `frame` is of a run with a single task per job (`ONE_TASK_BYTES`)."""
    return is_small_session(frame.sparkSession)


def is_small_session(spark: SparkSession) -> bool:
    """Whether the session is that of such a run."""
    return spark.conf.get("spark.sql.shuffle.partitions") == "1"
