"""The archive of an analysis' classes: made once in the background, and never in the way."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from canopy.traces.analysis.constants import ARCHIVE_SECONDS
from canopy.traces.analysis.spark.java import find_java
from canopy.traces.analysis.spark.session import ClassArchive, cache_folder

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the stand-in is a shell script")

STAND_IN = """#!/bin/sh
for argument do case "$argument" in
  -XX:SharedArchiveFile=*) echo "$@" > "${argument#*=}" ;;
esac done
"""


class Place:
    """A cache, a Java that makes an archive of its arguments, and a jar."""

    def __init__(self, folder: Path) -> None:
        self.cache = folder / "cache" / "java"
        self.java = folder / "a java"
        self.java.write_text(STAND_IN)
        self.java.chmod(0o755)
        self.jar = folder / "a.jar"
        self.jar.write_bytes(b"1")

    def archive(self) -> ClassArchive:
        return ClassArchive(self.cache, self.java, [self.jar])


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def noted(archive: ClassArchive) -> Path:
    (option,) = archive.options()
    name, _, path = option.partition("=")
    assert name == "-XX:DumpLoadedClassList"
    Path(path).write_text("java/lang/Object\n")
    return Path(path)


def made(archive: ClassArchive) -> None:
    process = archive.make("a.jar:b c.jar")
    assert process is not None
    assert process.wait(30) == 0


def test_the_first_run_notes_the_classes_and_the_next_ones_use_their_archive(
    place: Place,
) -> None:
    first = place.archive()
    classes = noted(first)
    assert place.archive().options() == [], "two runs make one archive"
    made(first)
    assert not classes.exists()
    text = first.path.read_text()
    assert f"-XX:SharedClassListFile={classes}" in text
    assert text.endswith("-cp a.jar:b c.jar\n")
    assert place.archive().options() == [f"-XX:SharedArchiveFile={first.path}"]
    assert place.archive().make("a.jar") is None
    assert list(place.cache.iterdir()) == [first.path]


def test_another_java_or_jar_has_another_archive_and_old_ones_go(place: Place) -> None:
    paths = []
    for version in range(3):
        place.jar.write_bytes(b"1" * (version + 1))
        archive = place.archive()
        noted(archive)
        made(archive)
        os.utime(archive.path, (version, version))
        paths.append(archive.path)
    assert len(set(paths)) == 3
    assert sorted(place.cache.iterdir()) == sorted(paths[1:])


def test_a_run_that_fails_leaves_nothing_and_one_that_was_killed_is_forgotten(
    place: Place,
) -> None:
    archive = place.archive()
    noted(archive)
    archive.forget()
    assert list(place.cache.iterdir()) == []
    left = noted(archive)
    os.utime(left, (1, 1))
    assert ARCHIVE_SECONDS > 1
    noted(place.archive())


def test_a_java_that_fails_leaves_no_archive(place: Place) -> None:
    place.java.write_text('#!/bin/sh\nfor a do f="$a"; done\nexit 1\n')
    archive = place.archive()
    noted(archive)
    process = archive.make("a.jar")
    assert process is not None
    process.wait(30)
    assert list(place.cache.iterdir()) == []


def test_without_a_cache_that_can_be_written_there_is_none(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", os.devnull)
    archive = ClassArchive(cache_folder(), place.java, [place.jar])
    assert archive.options() == []
    archive.forget()
    assert archive.make("a.jar") is None


def test_java_starts_with_an_archive_that_does_not_fit(tmp_path: Path) -> None:
    path = tmp_path / "a.jsa"
    path.write_bytes(b"no archive")
    java = find_java().executable
    done = subprocess.run(
        [java, f"-XX:SharedArchiveFile={path}", "-version"], capture_output=True, check=False
    )
    assert done.returncode == 0
