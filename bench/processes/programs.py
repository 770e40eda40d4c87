"""A command of the bench as a process of its own, which hears and says lines."""

from __future__ import annotations

import select
import subprocess
import sys
from typing import Self

from bench.lab.record import ROOT


class Program:
    """A context manager that leaves no process running."""

    def __init__(self, module: str, *words: object) -> None:
        """Run `python -m module words`."""
        self.process = subprocess.Popen(
            [sys.executable, "-m", module, *map(str, words)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,  # else `select` does not see what was read ahead
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()

    def say(self, line: str) -> None:
        """Write a line to its standard input."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n".encode())

    def line(self) -> str:
        """The next line that it says; empty if it has ended."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().decode().strip()

    def last(self) -> str:
        """The last of the lines that it has said since, or the next one if there is none."""
        assert self.process.stdout is not None
        last = self.line()
        while select.select([self.process.stdout], [], [], 0)[0]:
            last = self.line() or last
        return last

    def ask(self, line: str = "") -> str:
        """Write a line to it. Returns the next one that it says."""
        self.say(line)
        return self.line()
