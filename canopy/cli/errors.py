"""What went wrong, in words for a person, and as an exit code (DESIGN.md, section 6, Faces)."""

from __future__ import annotations

import os
import sys
from typing import Final

import click

OK: Final = 0
FAILURE: Final = 1
USAGE: Final = 2
UNREACHABLE: Final = 3
DENIED: Final = 4
TIME_OUT: Final = 5
INTERRUPTED: Final = 130

CODES: Final = {
    # by class name: the modules of these need not be loaded to look an error up
    "UnreachableError": UNREACHABLE,
    "DeniedError": DENIED,
    "CommandTimeoutError": TIME_OUT,
    "ControlError": FAILURE,
    "ConfigError": USAGE,
    "FolderError": FAILURE,
    "SelectorError": USAGE,
    "AnalysisError": FAILURE,
    "PlanError": USAGE,
    "OfflineError": UNREACHABLE,
    "DemoError": FAILURE,
    "ScenarioError": USAGE,
    "TracesError": FAILURE,
}
REPLY_CODES: Final = {"usage": USAGE, "selector": USAGE, "time-out": TIME_OUT}
"""Exit codes of a command that the node answered with `Failed`; others are FAILURE."""


class CommandError(Exception):
    """A command's own failure, with its exit code."""

    def __init__(self, message: str, code: int = FAILURE) -> None:
        super().__init__(message)
        self.code = code


def report(error: BaseException) -> int:
    """Tell the user of `error` on standard error, and return the exit code."""
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else FAILURE
    if isinstance(error, KeyboardInterrupt | click.Abort):
        say("interrupted", "")
        return INTERRUPTED
    if isinstance(error, BrokenPipeError):
        quiet_stdout()  # whoever read us has had enough: that is no failure
        return OK
    if isinstance(error, click.exceptions.Exit):
        return error.exit_code
    if isinstance(error, click.UsageError):
        error.show()
        return USAGE
    if isinstance(error, click.ClickException):
        say(error.format_message())
        return error.exit_code
    code = known_code(error)
    if code is not None:
        say(explain(error))
        return code
    if os.environ.get("CANOPY_DEBUG") == "1":
        import traceback

        traceback.print_exception(error)
    else:
        text = " ".join(str(error).split()) or "no details"
        say(f"{type(error).__name__}: {text} (a fault of ours; CANOPY_DEBUG=1 shows where)")
    return FAILURE


def known_code(error: BaseException) -> int | None:
    """The exit code of an error that one of our folders or the system foresaw, else None."""
    if isinstance(error, CommandError):
        return error.code
    if type(error).__name__ == "CommandFailed":
        return REPLY_CODES.get(getattr(error, "code", ""), FAILURE)
    for kind in type(error).__mro__:
        if kind.__name__ in CODES:
            return CODES[kind.__name__]
    return FAILURE if isinstance(error, OSError) and error.filename is not None else None


def explain(error: BaseException) -> str:
    """The error's message; a selector's with a caret under the place."""
    caret = getattr(error, "caret", None)
    if caret is not None:
        return f"the selector does not hold\n{caret()}"
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return str(error)


def say(text: str, prefix: str = "Error: ") -> None:
    """One message on standard error, which may be closed already."""
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        quiet_stdout()
    try:
        click.echo(f"{prefix}{text}", err=True)
    except (OSError, ValueError):
        return


def quiet_stdout() -> None:
    """Point standard output nowhere, so that the interpreter's last flush does not complain."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
    except (OSError, ValueError):
        return
