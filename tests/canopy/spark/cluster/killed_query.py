"""A streaming query from one stream into another, whose driver is killed when a batch has been
written and is not in the checkpoint yet. Started again, it goes on.

    python -m tests.canopy.spark.cluster.killed_query NODE CHECKPOINT BATCH

BATCH: the number of the batch at whose commit everything is killed; -1: none.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from canopy.spark.sink import StreamWriter
from canopy.spark.source import CanopySource


class KilledWriter(StreamWriter):
    """Kills the driver, with its JVM, when the batch has been written."""

    def commit(self, messages: Any, batchId: int) -> None:  # noqa: N803 - Spark's
        if batchId == int(os.environ["KILL_AT"]):
            os.killpg(int(os.environ["KILL_GROUP"]), signal.SIGKILL)


class KilledSource(CanopySource):
    """The same source under another name, whose writer kills."""

    @classmethod
    def name(cls) -> str:
        return "killed"

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:  # noqa: N802 - Spark's
        writer = super().streamWriter(schema, overwrite)
        writer.__class__ = KilledWriter
        return writer


def main() -> None:
    node, checkpoint, batch = sys.argv[1:]
    os.environ |= {"KILL_AT": batch, "KILL_GROUP": str(os.getpgid(0))}
    spark = SparkSession.builder.getOrCreate()
    spark.dataSource.register(KilledSource)
    rows = (
        spark.readStream.format("killed")
        .options(stream="in", node=node, startingOffsets="first", maxRowsPerTrigger="1000")
        .option("rowsPerPartition", "400")
        .schema("n BIGINT, who STRING")
        .load()
    )
    query = (
        rows.repartition(2, "n")  # a shuffle, after which the order may be another one
        .writeStream.format("killed")
        .options(stream="out", node=node, checkpointLocation=checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    print(query.id)
    spark.stop()


if __name__ == "__main__":
    main()
