"""Whether the machines of a cluster see a folder as this process does.

Each executor writes its part of a table into its own `/tmp/report` if that is no shared folder, and
the tables are empty where this process reads them.
"""

from __future__ import annotations

import secrets
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Final

from canopy.traces.analysis.errors import AnalysisError
from canopy.traces.analysis.spark.paths import for_reading

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FOLDER: Final = "canopy-probe"
"""Made in the folder that is looked at, and removed."""

ROUNDS: Final = 4
"""Tasks per core, so that every executor gets some. Guess."""

OPEN_COST: Final = "spark.sql.files.openCostInBytes"
MOST_BYTES: Final = "spark.sql.files.maxPartitionBytes"


def check_shared(spark: SparkSession, folder: Path) -> None:
    """Raise AnalysisError unless all executors read what this process writes into `folder`."""
    if str(spark.sparkContext.master).startswith("local"):
        return
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    count = ROUNDS * max(spark.sparkContext.defaultParallelism, 1)
    words = [secrets.token_hex(8) for _ in range(count)]
    before, most = (str(spark.conf.get(name)) for name in (OPEN_COST, MOST_BYTES))
    probe = folder / FOLDER
    try:
        probe.mkdir()
        for word in words:
            (probe / f"{word}.txt").write_text(word)
        spark.conf.set(OPEN_COST, most)  # a task for each
        seen = {row["value"] for row in spark.read.text(for_reading(probe)).collect()}
    except (Py4JError, PySparkException):
        seen = set()
    finally:
        spark.conf.set(OPEN_COST, before)
        shutil.rmtree(probe, ignore_errors=True)
    if seen != set(words):
        raise AnalysisError(
            f"the output folder {folder} is not the same one on the machines of the cluster: what "
            "this process wrote there they do not see; name a folder on a file system that they "
            "share"
        )
