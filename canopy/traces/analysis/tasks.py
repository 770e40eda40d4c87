"""How many tasks Spark makes of a run: of a small one a single task per job."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def in_one_task(frame: DataFrame) -> DataFrame:
    """`frame` in one partition where the session has one (`ONE_TASK` in ``spark/session.py``).

    Spark shuffles nothing that it knows to be in one partition. It does not know that after
    reading, after a union, and after an inner or full join.
    """
    one = frame.sparkSession.conf.get("spark.sql.shuffle.partitions") == "1"
    return frame.coalesce(1) if one else frame
