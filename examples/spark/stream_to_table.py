"""Keeps a table of Parquet files that has each row of a stream once, whenever it is killed.

    python examples/spark/stream_to_table.py orders /data/orders --schema "customer BIGINT"

The checkpoint lies beside the table. Runs until it is interrupted; with `--once`, until the table
has what is in the stream now.
"""

from __future__ import annotations

import argparse

from pyspark.sql import SparkSession

import canopy.spark


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("stream")
    parser.add_argument("table", help="the folder of the table")
    parser.add_argument("--schema", required=True, help="the attributes that are columns")
    parser.add_argument("--selector", default="")
    parser.add_argument("--node", help="the node's data folder, if it is not the default one")
    parser.add_argument("--once", action="store_true", help="end with what is there now")
    arguments = parser.parse_args()
    spark = SparkSession.builder.appName("stream to table").getOrCreate()
    canopy.spark.register(spark)
    reader = spark.readStream.format("canopy").option("stream", arguments.stream)
    if arguments.node:
        reader = reader.option("node", arguments.node)
    rows = (
        reader.option("selector", arguments.selector)
        .option("startingOffsets", "first")
        .schema(f"{arguments.schema}, _shard INT, _offset BIGINT, _time TIMESTAMP")
        .load()
    )
    writing = (
        rows.writeStream.format("parquet")
        .option("path", arguments.table)
        .option("checkpointLocation", f"{arguments.table}-checkpoint")
    )
    if arguments.once:
        writing = writing.trigger(availableNow=True)
    else:
        writing = writing.trigger(processingTime="1 second")
    writing.start().awaitTermination()


if __name__ == "__main__":
    main()
