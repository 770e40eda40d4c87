"""The number of tasks of a run: a small one has a single task per job, on rows in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, ParamSpec, Protocol, TypeVar

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def in_one_task(frame: DataFrame) -> DataFrame:
    """`frame` in one partition where the session has one (`ONE_TASK` in ``spark/session.py``).

    Spark shuffles nothing that it knows to be in one partition. It does not know that after
    reading, after a union, and after an inner or full join.
    """
    return frame.coalesce(1) if is_small(frame) else frame


def by_event(frame: DataFrame) -> DataFrame:
    """Return `frame` partitioned by `event`, so that later operations by event need no shuffle."""
    return in_one_task(frame) if is_small(frame) else frame.repartition("event")


def few(frame: DataFrame) -> DataFrame:
    """`frame`, which has rows enough for a join but not for a shuffle of the other side; a small
    run has one task and no broadcasts."""
    return frame if is_small(frame) else frame.hint("broadcast")


def kept(frame: DataFrame) -> DataFrame:
    """Return `frame`, a table, which a small run keeps in memory after its first use.

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


def frame_of_table(spark: SparkSession, table: Any, schema: Any = None) -> DataFrame:
    """All rows of an Arrow `table` as a frame, in one partition in a small run. Spark's reader of a
    stream of Arrow batches takes one without rows for the end, so that none may be in it."""
    frame: Any = spark.createDataFrame(table.combine_chunks(), schema)
    return in_one_task(frame)


def frame_of(spark: SparkSession, rows: Sequence[Sequence[Any]], schema: str) -> DataFrame:
    """These few `rows` as a frame with this `schema`. Spark's own way to one from Python's values
    starts a worker."""
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    kinds: Any = StructType.fromDDL(schema)
    columns = to_arrow_schema(kinds)
    table = pa.Table.from_pylist(
        [dict(zip(columns.names, row, strict=True)) for row in rows], columns
    )
    return frame_of_table(spark, table)


def is_small(frame: DataFrame) -> bool:
    """Whether `frame` is of a run with a single task per job (`ONE_TASK_BYTES`)."""
    return is_small_session(frame.sparkSession)


def is_small_session(spark: SparkSession) -> bool:
    """Whether the session is that of such a run."""
    return spark.conf.get("spark.sql.shuffle.partitions") == "1"


AT_ONCE: Final = 2  # queries that are planned and run beside the one of the main thread. Guess

P = ParamSpec("P")
T = TypeVar("T")


class BeginCall(Protocol):
    """Begins a call in another thread."""

    def __call__(self, function: Callable[P, T], /, *args: P.args, **named: P.kwargs) -> Future[T]:
        """`function` with these parameters."""
        ...


@contextmanager
def at_once() -> Iterator[BeginCall]:
    """Calls that are begun within the `with` run beside one another, and have ended after it. Where
    that raises, those that have not begun do not begin."""
    pool = ThreadPoolExecutor(AT_ONCE, "analysis")
    try:
        yield pool.submit
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    pool.shutdown()


# --- the stages of an analysis, and the callback that hears of them ---

OnProgress = Callable[[str, int, int], None]
"""Called with (stage that begins, number of stages done, number of stages); at the end done =
total."""

STAGES: Final = (
    "starting Spark",
    "reading the traces",
    "computing expected deliveries",
    "comparing with the deliveries",
    "counting walks and tree hops",
    "adding up the load of nodes",
    "collecting details and slow paths",
    "writing the report",
)
"""The stages, in order."""


def silent(stage: str, done: int, total: int) -> None:
    """A callback that ignores the progress."""
