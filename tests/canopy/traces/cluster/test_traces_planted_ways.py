"""The planted faults in the other ways of reading (`make cluster`): as a run that is too large for
one task, on this machine and on a cluster. The suite has them in one task."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from canopy.traces.analysis import AnalysisSummary, analyze, spark_session
from canopy.traces.analysis.constants import ONE_TASK_BYTES
from canopy.traces.analysis.tasks import is_small_session
from harness.spark_cluster import SparkCluster
from tests.canopy.traces.planted.faults import PLANTED, judged_right, plant

pytestmark = [pytest.mark.spark, pytest.mark.cluster, pytest.mark.timeout(3600)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("planted")
    plant(made)
    return made


@pytest.fixture(scope="module", params=["local", "cluster"])
def found(
    request: pytest.FixtureRequest, folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[AnalysisSummary]:
    """The analysis of all runs, in each of the two ways."""
    traces, out = folder / "traces", folder / str(request.param)
    if request.param == "local":
        with ExitStack() as stack:
            stack.enter_context(pytest.MonkeyPatch.context()).setenv("XDG_CACHE_HOME", os.devnull)
            spark = stack.enter_context(spark_session(None, ONE_TASK_BYTES))
            assert not is_small_session(spark)
            yield analyze(traces, out, session=spark)
        return
    work = tmp_path_factory.mktemp("cluster")
    (work / "events").mkdir()
    with SparkCluster(work, 2) as cluster:
        yield analyze(traces, out, master=cluster.url, settings=cluster.values(work / "events"))


@pytest.mark.parametrize("name", PLANTED)
def test_the_verdict_on_a_planted_fault(name: str, found: AnalysisSummary) -> None:
    judged_right(name, found)
