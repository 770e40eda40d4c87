"""Which lines of ours the inputs of a parser reach."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

ROOT: Final = str(Path(__file__).parents[2])
OURS: Final = tuple(f"{ROOT}/{folder}/" for folder in ("canopy", "overlay", "matching", "streams"))


class Coverage:
    """The lines that were reached, of those functions of ours that were entered at all. Tracing
    takes a hundred times as long as parsing."""

    def __init__(self) -> None:
        self._reached: dict[CodeType, set[int]] = {}
        self._is_new = False

    def adds(self, run: Callable[[bytes], None], data: bytes) -> bool:
        """Run a parser on an input. Whether that reaches lines that no input has before."""
        self._is_new = False
        sys.settrace(self._call)
        try:
            run(data)
        finally:
            sys.settrace(None)
        return self._is_new

    def counted(self) -> tuple[int, int]:
        """How many lines were reached, and how many there are in these functions."""
        there = {
            (code.co_filename, line)
            for code in self._reached
            for _, _, line in code.co_lines()
            if line is not None and line != code.co_firstlineno
        }
        reached = {
            (code.co_filename, line) for code, lines in self._reached.items() for line in lines
        }
        return len(reached & there), len(there)

    def _call(self, frame: FrameType, event: str, argument: Any) -> Callable[..., Any] | None:
        if not frame.f_code.co_filename.startswith(OURS):
            return None
        self._reached.setdefault(frame.f_code, set())
        return self._line

    def _line(self, frame: FrameType, event: str, argument: Any) -> Callable[..., Any]:
        if event == "line":
            lines = self._reached[frame.f_code]
            self._is_new |= frame.f_lineno not in lines
            lines.add(frame.f_lineno)
        return self._line
