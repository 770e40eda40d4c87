"""Streams as sources and sinks of Apache Spark.

*Promises*: a query reads each committed row of a stream that its selector matches once, in pieces
that are the same when a task or a trigger is done again; it writes each row of a micro-batch once,
also if it was killed between the write and the checkpoint (docs/guide/spark.md,
docs/design/spark.md).

*Called by*: programs with PySpark, through `register`; Spark's Python workers, which need Canopy.

*Read in this order*: `options`: what a user says. `columns`: rows as Arrow batches. `rows`: what
both places can do that rows come from, `node` and `segments`. `pushing`: filters of a query.
`sink`: writing. `source`: what Spark sees of all that.

PySpark and PyArrow are the extra `spark`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from canopy.spark.errors import RowsLostError, SparkSourceError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["RowsLostError", "SparkSourceError", "register"]


def register(spark: SparkSession) -> None:
    """Make `format("canopy")` known to this session."""
    from canopy.spark.source import CanopySource

    spark.dataSource.register(CanopySource)
