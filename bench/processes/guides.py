"""Runs the guides as a reader would: every block of a page, shell or Python, from top to bottom.

    python -m bench.processes.guides                   # all pages that can be run
    python -m bench.processes.guides streams subscribe # some
    python -m bench.processes.guides --list            # what is run of each page, and what is not

Each page has a folder that is its home as well, with this environment as .venv, and one shell for
all of its blocks, which ends at the first command that fails. A Python block is a program of its
own. Between blocks it waits as long as a
reader takes to go on. A page passes if every block did, and if it leaves no process behind: what it
starts it stops. A block with a comment before it is not run, and the comment says why:

    <!-- not run: it takes a second machine -->

A block behind `<!-- run with PostgreSQL -->` is run where a server can be started: the page has one
of its own, with the databases that it names (`postgresql:///NAME`), which are empty.

The exit code is 0 if all pages passed, else 1. Nodes listen on the ports that the pages name.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]
BLOCK: Final = re.compile(
    r"(?:^<!-- (?:not run: (?P<why>[^\n]*?)|(?P<server>run with PostgreSQL)) -->\n+)?"
    r"^```(?P<language>sh|bash|python)\n(?P<text>.*?)^```$",
    re.M | re.S,
)
PYTHON: Final = "python -W error - <<'END-OF-EXAMPLE'\n{}END-OF-EXAMPLE\n"
"""How a shell runs a Python block."""

DATABASE: Final = re.compile(r"postgresql:///(\w+)")
READING: Final = 3.0
"""Seconds between two blocks: as long as a reader takes, in which what was begun gets ready."""

LONGEST: Final = 600.0
"""Seconds that a page may take."""


class Block(NamedTuple):
    """A block of a page: its first line there, its text for a shell, why it is not run, or "", and
    whether it takes a PostgreSQL server."""

    line: int
    text: str
    why: str
    has_server: bool = False


def pages() -> dict[str, Path]:
    """The guides, the README and the page of examples, by name."""
    guides = sorted((ROOT / "docs" / "guide").glob("*.md"))
    front = {"README": ROOT / "README.md", "examples": ROOT / "examples" / "README.md"}
    return {**front, **{path.stem: path for path in guides}}


def blocks(text: str) -> list[Block]:
    """The blocks of a page that a reader can run."""
    return [
        Block(
            text.count("\n", 0, found.start("text")) + 1,
            PYTHON.format(found["text"]) if found["language"] == "python" else found["text"],
            found["why"] or "",
            found["server"] is not None,
        )
        for found in BLOCK.finditer(text)
    ]


@contextmanager
def server(found: Sequence[Block]) -> Iterator[tuple[list[Block], dict[str, str]]]:
    """A PostgreSQL server if a block asks for one: the blocks, and how programs find the server.
    Where none can be started these blocks are not run."""
    if not any(block.has_server for block in found):
        yield list(found), {}
        return
    from harness.postgres import NoServerError, Server

    try:
        running = Server()
    except NoServerError as error:
        yield [b._replace(why=str(error)) if b.has_server else b for b in found], {}
        return
    try:
        for name in sorted({n for block in found for n in DATABASE.findall(block.text)}):
            running.database(name)
        yield list(found), {"PGHOST": str(running.folder), "PGUSER": "canopy"}
    finally:
        running.stop()


def script(found: Sequence[Block]) -> str:
    """The blocks that are run, as one script that says where it is."""
    parts = ["set -eo pipefail"]
    for block in found:
        if not block.why:
            parts.append(f"echo {shlex.quote(f'--- line {block.line}')} >&2\n{block.text}")
            parts.append(f"sleep {READING}")
    return "\n".join(parts)


def run(name: str, text: str) -> str:
    """Run a page and return what is wrong with it, with the last lines that it has printed; "" if
    nothing is."""
    with (
        server(blocks(text)) as (found, there),
        tempfile.TemporaryDirectory(prefix=f"guide-{name}-") as folder,
    ):
        for block in found:
            if block.has_server and block.why:
                print(f"  line {block.line} is not run: {block.why}", flush=True)
        home = Path(folder)
        environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith("CANOPY_")},
            "HOME": folder,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            **there,
        }
        for kind in ("DATA", "STATE", "CONFIG"):
            environment[f"XDG_{kind}_HOME"] = str(home / f".{kind.lower()}")
        environment["XDG_CACHE_HOME"] = os.environ.get(
            "XDG_CACHE_HOME", str(Path.home() / ".cache")
        )
        (home / ".venv").symlink_to(Path(sys.prefix))
        output = home / "output"
        with output.open("wb") as out:
            shell = subprocess.Popen(
                ["bash", "-c", script(found)],
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                code: int | None = shell.wait(LONGEST)
            except subprocess.TimeoutExpired:
                code = None
            left = remaining(shell.pid)
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            shell.wait()
        said = output.read_text(encoding="utf-8", errors="replace").splitlines()[-30:]
    wrong = f"not done after {LONGEST:.0f} s" if code is None else f"exit code {code}"
    if code == 0:
        wrong = f"{len(left)} processes are left" if left else ""
    return "\n  | ".join((wrong, *said)) if wrong else ""


def remaining(session: int) -> list[int]:
    """The processes of a shell's session, without the shell, after they had a moment to end."""
    found: list[int] = []
    for _ in range(20):
        done = subprocess.run(
            ["ps", "-o", "pid=,stat=", "-s", str(session)], capture_output=True, text=True
        )
        rows = [line.split() for line in done.stdout.splitlines()]
        found = [int(pid) for pid, state in rows if not state.startswith("Z")]
        if not found:
            break
        time.sleep(0.25)
    return found


def main(args: Sequence[str] | None = None) -> int:
    """Run the command `python -m bench.processes.guides` and return its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.processes.guides",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="PAGE", help=", ".join(pages()))
    parser.add_argument("--list", action="store_true", help="run nothing")
    options = parser.parse_args(args)
    there = pages()
    unknown = set(options.names) - set(there)
    if unknown:
        parser.error(f"no page is called {', '.join(unknown)}; there are {', '.join(there)}")
    failed = []
    for name in options.names or there:
        text = there[name].read_text(encoding="utf-8")
        found = blocks(text)
        runs = sum(not block.why for block in found)
        print(f"{name}: {runs} of {len(found)} blocks", flush=True)
        if options.list:
            for block in found:
                if block.why:
                    print(f"  line {block.line} is not run: {block.why}")
        elif runs:
            began = time.monotonic()
            wrong = run(name, text)
            failed += [name] if wrong else []
            print(f"  {wrong or 'passed'}, {time.monotonic() - began:.0f} s", flush=True)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
