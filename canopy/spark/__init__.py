"""Streams as sources and sinks of Apache Spark.

*Promises*: a query reads each committed row of a stream that its selector matches once, in pieces
that are the same when a task or a trigger is done again; it writes each row of a micro-batch once,
also if it was killed between the write and the checkpoint (docs/guide/spark.md,
docs/design/spark.md).

*Called by*: programs with PySpark, through `register`; Spark's Python workers, which need Canopy.

*Read in this order*: `options`: what a user says. `blocks`: encoded rows, decoded column by column;
`columns`: Arrow batches of them. `rows`: what both places can do that rows come from, `node` and
`segments`. `pushed_filters` of a query. `sink`: writing. `source`: what Spark sees of all that.
`history`: Parquet files with the stream behind them.

PySpark and PyArrow are the extra `spark`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from canopy.spark.rows import RowsLostError, SparkSourceError

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

__all__ = ["RowsLostError", "SparkSourceError", "read_with_history", "register"]


def register(spark: SparkSession) -> None:
    """Make `format("canopy")` known to this session."""
    from canopy.spark.source import CanopySource

    spark.dataSource.register(CanopySource)


def read_with_history(spark: SparkSession, folder: str | Path, **options: str) -> DataFrame:
    """The rows of a stream: the Parquet files of `folder`, which `canopy stream export --format
    parquet` has written, and behind them the stream, without a row missing or twice. `options` are
    those of `format("canopy")`; the selector is that of the files. Raises SparkSourceError."""
    from canopy.spark.history import with_history

    register(spark)
    return with_history(spark, folder, **options)
