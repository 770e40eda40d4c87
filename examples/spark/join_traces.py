"""Which durable consumer was handed which event of a stream, and how long after its appending.

    python examples/spark/join_traces.py orders ~/.local/share/canopy/default/traces

Joins the rows of a stream with the trace records of all nodes (docs/reference/formats.md), of
which those of the kind *take* say that a consumer was handed a row.
"""

from __future__ import annotations

import argparse

from pyspark.sql import SparkSession

import canopy
import canopy.spark
from overlay.client import GetStreams, Streams

RECORD = "kind STRING, time DOUBLE, node STRING, name STRING, shard STRING, `offset` BIGINT"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("stream")
    parser.add_argument("traces", help="the folder with date=…/node=… of all nodes")
    parser.add_argument("--node", help="the node's data folder, if it is not the default one")
    arguments = parser.parse_args()
    with canopy.connect(arguments.node) as client:
        (stream,) = client.ask(GetStreams(0, arguments.stream), Streams).streams
    spark = SparkSession.builder.appName("join with traces").getOrCreate()
    canopy.spark.register(spark)
    reader = spark.read.format("canopy").option("stream", arguments.stream)
    if arguments.node:
        reader = reader.option("node", arguments.node)
    rows = reader.schema("_shard INT, _offset BIGINT, _time TIMESTAMP, _attributes STRING").load()
    takes = (
        spark.read.schema(RECORD)
        .json(arguments.traces, recursiveFileLookup=True)
        .where(f"kind = 'take' AND shard LIKE '{stream.id}/%'")
        .selectExpr(
            "CAST(split_part(shard, '/', 2) AS INT) AS _shard",
            "`offset` AS _offset",
            "name AS consumer",
            "time AS taken",
        )
    )
    joined = rows.join(takes, ["_shard", "_offset"], "left").selectExpr(
        "_shard",
        "_offset",
        "consumer",
        "round(1000 * (taken - CAST(_time AS DOUBLE)), 1) AS after_ms",
        "_attributes",
    )
    joined.orderBy("_shard", "_offset").show(100, truncate=False)


if __name__ == "__main__":
    main()
