"""Changes the code at random by mutmut, one place at a time, and lists what no test notices.

    make mutants                                  # files that changed within a week, for an hour
    make mutants MUTANTS="--minutes 120 --since v0.1.0"
    make mutants MUTANTS=overlay/links/backlog.py       # these files

mutmut makes the mutants and finds by coverage which tests each needs. It is given the files and the
tests that import them: the smallest six of each, without those with Spark and processes. It works
in a copy of the commit that is checked out (a worktree). Much of what survives is the same program
in other words, or a time that may be another; what is neither is a hole in the tests.
"""

from __future__ import annotations

import ast
import os
import re
import signal
import site
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from bench.command import parser
from bench.lab.record import ROOT

PRODUCT: Final = ("overlay", "matching", "streams", "canopy", "node.py")
ALSO: Final = (
    *PRODUCT,
    "bench",
    "harness",
    "tests",
    "docs",
    "examples",
    "deploy",
    "pyproject.toml",
)
"""What tests import and read."""

TESTS_MOST: Final = 6
"""Files of tests for one file of the product."""

SURVIVED: Final = re.compile(r"^\s*(\S+): survived$", re.M)


def git(*words: str) -> str:
    """The output of a git command. CalledProcessError if it fails."""
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def changed_files(since: str) -> list[str]:
    """Files of the product that changed since a commit; "": within the last week."""
    commits = f"{since}..HEAD" if since else "--since=1.week"
    names = set(git("log", "--name-only", "--format=", commits, "--", *PRODUCT).splitlines())
    return sorted(name for name in names if name.endswith(".py") and (ROOT / name).exists())


def imports(text: str) -> set[str]:
    """Names of all modules that a file's text imports, and of what may be some."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom):
            found |= {str(node.module), *(f"{node.module}.{one.name}" for one in node.names)}
        elif isinstance(node, ast.Import):
            found |= {one.name for one in node.names}
    return found


def importers(files: Iterable[str]) -> list[str]:
    """The files of tests that import these files of the product, the smallest of each."""
    tests: list[tuple[int, str, set[str]]] = []
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        text = path.read_text(encoding="utf-8")
        if not re.search("pytest.mark.(spark|process)", text):  # seconds for each mutant
            tests.append((len(text), str(path.relative_to(ROOT)), imports(text)))
    found: set[str] = set()
    for file in files:
        module = file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        found |= {
            path for _, path, names in [t for t in sorted(tests) if module in t[2]][:TESTS_MOST]
        }
    return sorted(found)


def configuration(files: Sequence[str], tests: Sequence[str]) -> str:
    """What mutmut is to do."""
    also = [name for name in ALSO if (ROOT / name).exists()]
    lists = {"source_paths": files, "pytest_add_cli_args_test_selection": tests, "also_copy": also}
    lines = [
        f"{key}=\n" + "".join(f"    {name}\n" for name in names) for key, names in lists.items()
    ]
    return "[mutmut]\n" + "".join(lines)


def run(command: Sequence[str], folder: Path, minutes: float) -> str:
    """Return what a command of mutmut prints. It is stopped after `minutes`."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(site.getsitepackages())}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=said, stderr=said, start_new_session=True
        )
        try:
            process.wait(60 * minutes)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGINT)
            process.wait()
        said.seek(0)
        return said.read()


def main(args: Sequence[str] | None = None) -> int:
    """Run the command `python -m bench.mutations.mutants` and return its exit code: 0 if mutmut has
    tried something."""
    made = parser(
        __doc__,
        since=("", "changed since this commit; a week"),
        minutes=(60.0, "how long it may take"),
        workers=(2, "mutants that are tried at a time"),
        mutmut=("build/mutmut/bin/mutmut", "the program"),
    )
    made.add_argument("files", nargs="*", help="files of the product (default: what changed)")
    options = made.parse_args(args)
    files = options.files or changed_files(options.since)
    tests, mutmut = importers(files), str(ROOT / options.mutmut)
    print(f"{len(files)} files, {len(tests)} files of tests", file=sys.stderr)
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent) / "copy"
        git("worktree", "add", "--detach", str(folder), "HEAD")
        try:
            (folder / "setup.cfg").write_text(configuration(files, tests), encoding="utf-8")
            workers = ["--max-children", str(options.workers)]
            said = run([mutmut, "run", *workers], folder, options.minutes)
            found = run([mutmut, "results", "--all", "true"], folder, 5.0)
            survived = SURVIVED.findall(found)
            for name in survived:
                print(run([mutmut, "show", name], folder, 1.0).strip(), end="\n\n")
        finally:
            git("worktree", "remove", "--force", str(folder))
    tried = len(survived) + len(re.findall(r": (?:killed|timeout|suspicious)$", found, re.M))
    if not tried:
        print(said[-2_000:], file=sys.stderr)
    print(f"{len(survived)} of {tried} mutants survived")
    return 0 if tried else 1


if __name__ == "__main__":
    sys.exit(main())
