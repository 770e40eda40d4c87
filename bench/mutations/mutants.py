"""Changes the code at random, one place at a time, and lists the changes that no test notices.

    python -m bench.mutations.mutants                        # files changed within a week
    python -m bench.mutations.mutants --since v0.1.0 --minutes 120
    python -m bench.mutations.mutants overlay/bounded.py     # these files

A mutant is a file of the product in which a comparison, a condition or a number is another one, or
a statement is missing. Tests whose files import the module, the smallest six, have to fail with it.
They run in a copy of the commit that is checked out (a worktree), and have to pass there unchanged.
Places are drawn by `--seed`. Much of what survives is the same program in other words, or a time
that may be another; what is neither is a hole in the tests.
"""

from __future__ import annotations

import argparse
import ast
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple, Self

from bench.lab.record import ROOT

PRODUCT: Final = ("overlay", "matching", "streams", "canopy", "node.py")

TESTS_MOST: Final = 6
"""Files of tests for one file of the product."""

PAIRS: Final[tuple[tuple[Any, Any], ...]] = (
    *((ast.Lt, ast.LtE), (ast.Gt, ast.GtE), (ast.Eq, ast.NotEq), (ast.Is, ast.IsNot)),
    *((ast.In, ast.NotIn), (ast.And, ast.Or), (ast.Add, ast.Sub), (ast.Mult, ast.FloorDiv)),
)

OTHER: Final = dict(PAIRS) | {other: one for one, other in PAIRS}
"""What an operator may be replaced by."""


Function = ast.FunctionDef | ast.AsyncFunctionDef


class Mutant(NamedTuple):
    """One change of a file."""

    line: int
    was: str
    new: str
    text: str  # of the whole file


def changed(node: ast.AST) -> str:
    """What an expression or statement is replaced by; "": it stays."""
    match node:
        case ast.Compare(left, [operator], [right]) if type(operator) in OTHER:
            return ast.unparse(ast.Compare(left, [OTHER[type(operator)]()], [right]))
        case ast.BinOp(left, operator, right) if type(operator) in OTHER:
            return ast.unparse(ast.BinOp(left, OTHER[type(operator)](), right))
        case ast.BoolOp(operator, values):
            return ast.unparse(ast.BoolOp(OTHER[type(operator)](), values))
        case ast.UnaryOp(ast.Not(), operand):
            return ast.unparse(operand)
        case ast.Constant(bool() as value):
            return str(not value)
        case ast.Constant(int() as value):
            return str(value + 1)
        case ast.Expr(ast.Call()) | ast.AugAssign() | ast.Continue() | ast.Delete():
            return "pass"
    return ""


def nodes(function: Function) -> Iterator[ast.AST]:
    """All of a function's body but annotations and messages."""
    left: list[ast.AST] = list(function.body)
    while left:
        node = left.pop()
        yield node
        if isinstance(node, ast.AnnAssign):
            left.extend([node.value] if node.value else [])
        elif not isinstance(node, ast.Raise | ast.Assert | ast.JoinedStr | Function):
            left.extend(ast.iter_child_nodes(node))


def mutants(text: str) -> list[Mutant]:
    """All mutants of a file's text, in functions: constants of a module are settings."""
    raw, found = text.encode(), []
    starts = [0, *accumulate(len(line) for line in raw.splitlines(keepends=True))]
    functions = [n for n in ast.walk(ast.parse(text)) if isinstance(n, Function)]
    for node in (node for function in functions for node in nodes(function)):
        if isinstance(node, ast.expr | ast.stmt) and (new := changed(node)):
            start = starts[node.lineno - 1] + node.col_offset
            end = starts[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)
            was = " ".join(raw[start:end].decode().split())
            put = f"({new})" if isinstance(node, ast.expr) else new
            whole = (raw[:start] + put.encode() + raw[end:]).decode()
            found.append(Mutant(node.lineno, was, new, whole))
    return found


def git(*words: str) -> str:
    """What git says."""
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


def importers(file: str) -> list[str]:
    """The files of tests that import a file of the product, without Spark and processes, which
    take seconds for each mutant."""
    module = file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    found = []
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        text = path.read_text(encoding="utf-8")
        if not re.search("pytest.mark.(spark|process)", text) and module in imports(text):
            found.append((len(text), str(path.relative_to(ROOT))))
    return [path for _, path in sorted(found)[:TESTS_MOST]]


class Copy:
    """A copy of the commit that is checked out, in which tests run."""

    def __enter__(self) -> Self:
        self._folder = Path(tempfile.mkdtemp()) / "copy"
        self._stamp = time.time()
        git("worktree", "add", "--detach", str(self._folder), "HEAD")
        return self

    def __exit__(self, *error: object) -> None:
        git("worktree", "remove", "--force", str(self._folder))
        self._folder.parent.rmdir()

    def _passes(self, tests: Sequence[str], seconds: float) -> bool:
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(self._folder / "build/pycache")}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        try:
            done = subprocess.run(
                command, cwd=self._folder, env=environment, capture_output=True, timeout=seconds
            )
        except subprocess.TimeoutExpired:
            return False
        return done.returncode == 0

    def _write(self, file: str, text: str) -> None:
        path = self._folder / file
        path.write_text(text, encoding="utf-8")
        self._stamp += 10  # a time that no compiled module has: those are known by it
        os.utime(path, (self._stamp, self._stamp))

    def tries(
        self, file: str, drawn: Sequence[Mutant], until: float
    ) -> Iterator[tuple[Mutant, bool]]:
        """Each mutant of a file that is tried by then, and whether its tests pass with it."""
        tests, began = importers(file), time.monotonic()
        if began > until or not tests or not self._passes(tests, until - began):
            print(f"{file}: not tried: no time, or no tests that pass", file=sys.stderr)
            return
        most = 4 * (time.monotonic() - began) + 10
        for mutant in drawn:
            if time.monotonic() < until:
                self._write(file, mutant.text)
                yield mutant, self._passes(tests, most)
        self._write(file, git("show", f"HEAD:{file}") + "\n")


def main(args: Sequence[str] | None = None) -> int:
    """Run the command `python -m bench.mutations.mutants` and return its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.mutations.mutants",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("files", nargs="*", help="files of the product (default: what changed)")
    parser.add_argument("--since", default="", help="changed since this commit (default: a week)")
    parser.add_argument("--minutes", type=float, default=60.0, help="how long it may take")
    parser.add_argument("--each", type=int, default=20, help="mutants of a file at most")
    parser.add_argument("--seed", type=int, default=1, help="which places are drawn")
    options = parser.parse_args(args)
    rng, until = Random(options.seed), time.monotonic() + 60 * options.minutes
    files = options.files or changed_files(options.since)
    rng.shuffle(files)
    tried: list[bool] = []
    with Copy() as copy:
        for file in files:
            found = mutants((ROOT / file).read_text(encoding="utf-8"))
            drawn = rng.sample(found, min(options.each, len(found)))
            for mutant, survives in copy.tries(file, drawn, until):
                tried.append(survives)
                if survives:
                    print(f"{file}:{mutant.line}: {mutant.was}  ->  {mutant.new}", flush=True)
    print(f"{sum(tried)} of {len(tried)} mutants survived")
    return 0


if __name__ == "__main__":
    sys.exit(main())
