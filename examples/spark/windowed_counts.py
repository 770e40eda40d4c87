"""Counts the events of a stream that a selector matches, by an attribute and by time.

    python examples/spark/windowed_counts.py quakes net --selector "mag > 4.5" --window "10 minutes"

The selector is carried out where the stream is. Prints the counts that have changed, every second;
with `--once`, those of what is there now.
"""

from __future__ import annotations

import argparse

from pyspark.sql import SparkSession
from pyspark.sql.functions import count, window

import canopy.spark


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("stream")
    parser.add_argument("attribute", help="a text, by which events are counted")
    parser.add_argument("--selector", default="")
    parser.add_argument("--window", default="10 seconds")
    parser.add_argument("--node", help="the node's data folder, if it is not the default one")
    parser.add_argument("--once", action="store_true", help="end with what is there now")
    arguments = parser.parse_args()
    spark = SparkSession.builder.appName("windowed counts").getOrCreate()
    canopy.spark.register(spark)
    reader = spark.readStream.format("canopy").option("stream", arguments.stream)
    if arguments.node:
        reader = reader.option("node", arguments.node)
    events = (
        reader.option("selector", arguments.selector)
        .option("startingOffsets", "first")
        .schema(f"`{arguments.attribute}` STRING, _time TIMESTAMP")
        .load()
    )
    counts = (
        events.withWatermark("_time", arguments.window)
        .groupBy(window("_time", arguments.window).alias("window"), arguments.attribute)
        .agg(count("*").alias("events"))
        .selectExpr("window.start", f"`{arguments.attribute}`", "events")
    )
    writing = counts.writeStream.outputMode("update").format("console").option("truncate", "false")
    if arguments.once:
        writing = writing.trigger(availableNow=True)
    else:
        writing = writing.trigger(processingTime="1 second")
    writing.start().awaitTermination()


if __name__ == "__main__":
    main()
