"""What can go wrong between Spark and streams."""

from __future__ import annotations


class SparkSourceError(Exception):
    """A stream cannot be read or written by Spark as it was asked for: says what to do."""


class RowsLostError(SparkSourceError):
    """Rows that a query has not read are not kept any more."""
