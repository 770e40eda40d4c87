"""Were the committed rows of streams consumed once by each durable consumer?

Judged by Spark from three kinds of records that different nodes write: *row* by the leader that
commits it, *take* by the node of a program that is handed it, *consume* by that node when a
position is confirmed. ``job`` has the tables and the verdict.
"""

from canopy.traces.analysis.streams.job import StreamSummary, judge_streams

__all__ = ["StreamSummary", "judge_streams"]
