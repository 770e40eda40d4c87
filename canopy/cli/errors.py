"""Errors as messages for people and as exit codes (docs/reference/commands.md)."""

from __future__ import annotations

import errno
import os
import sys
from typing import Final

import click

from overlay.phrases import in_one_line

OK: Final = 0
FAILURE: Final = 1
USAGE: Final = 2
UNREACHABLE: Final = 3
DENIED: Final = 4
TIME_OUT: Final = 5
UNDECIDED: Final = 5  # the traces prove neither that a run was right nor that it was not
WRONG: Final = 9  # what was examined is not right; the command itself did not fail
INTERRUPTED: Final = 130

CODES: Final = {
    # by class name, so that the modules that define them need not be imported
    "NodeFullError": FAILURE,
    "UnreachableError": UNREACHABLE,
    "DeniedError": DENIED,
    "CommandTimeoutError": TIME_OUT,
    "UnknownContextError": USAGE,
    "AddressError": USAGE,
    "TokensError": FAILURE,
    "ControlError": FAILURE,
    "ConfigError": USAGE,
    "FolderError": FAILURE,
    "KeyFolderError": FAILURE,
    "LimitError": FAILURE,
    "SealFileError": FAILURE,
    "SealFileDeniedError": DENIED,
    "JoinError": FAILURE,
    "TokenError": USAGE,
    "CertificateError": USAGE,
    "SelectorError": USAGE,
    "AnalysisError": FAILURE,
    "PlanError": USAGE,
    "OfflineError": UNREACHABLE,
    "DemoError": FAILURE,
    "ScenarioError": USAGE,
    "TracesError": FAILURE,
    "MissingExtraError": FAILURE,
    "SyncError": FAILURE,
}
REPLY_CODES: Final = {
    "usage": USAGE,
    "selector": USAGE,
    "time-out": TIME_OUT,
    "leaving": UNREACHABLE,
    "no-majority": UNREACHABLE,
    "in-doubt": TIME_OUT,
    "denied": DENIED,
}
"""Exit codes for the code of a node's `Failed` reply; FAILURE for any other."""


OUTPUT_ERRNOS: Final = frozenset(
    (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS, errno.EBADF)
)
"""Errors of writing to standard output that are not the program's: the disk or the quota is full,
or it is closed."""


class CommandError(Exception):
    """A failure that a command itself detected, with its exit code."""

    def __init__(self, message: str, code: int = FAILURE) -> None:
        super().__init__(message)
        self.code = code


def report(error: BaseException) -> int:
    """Print a message about `error` on standard error. Returns the exit code."""
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else FAILURE
    if isinstance(error, KeyboardInterrupt | click.Abort):
        say("interrupted", "")
        return INTERRUPTED
    if isinstance(error, BrokenPipeError):
        quiet_stdout()  # the reader has closed the pipe: no failure
        return OK
    if isinstance(error, click.exceptions.Exit):
        return error.exit_code
    if isinstance(error, click.UsageError):
        error.show()
        return USAGE
    if isinstance(error, click.ClickException):
        say(error.format_message())
        return error.exit_code
    if isinstance(error, ModuleNotFoundError):
        from canopy.cli.extras import EXTRAS, advice

        library = (error.name or "").partition(".")[0]
        missing = [extra for extra, libraries in EXTRAS.items() if library in libraries]
        if missing:
            say(f"this needs {library}, {advice(missing)}")
            return FAILURE
    code = known_code(error)
    if code is not None:
        say(message_of(error))
        return code
    if os.environ.get("CANOPY_DEBUG") == "1":
        import traceback

        traceback.print_exception(error)
    else:
        text = in_one_line(error) or "no details"
        say(f"{type(error).__name__}: {text} (a bug in canopy; CANOPY_DEBUG=1 shows where)")
    return FAILURE


def known_code(error: BaseException) -> int | None:
    """Return the exit code of an expected error: a class of `CODES`, or an OSError with a file
    name. None for others."""
    if isinstance(error, CommandError):
        return error.code
    if any(kind.__name__ == "CommandFailed" for kind in type(error).__mro__):
        return REPLY_CODES.get(getattr(error, "code", ""), FAILURE)
    for kind in type(error).__mro__:
        if kind.__name__ in CODES:
            return CODES[kind.__name__]
    if isinstance(error, OSError) and (error.filename is not None or error.errno in OUTPUT_ERRNOS):
        return FAILURE
    return None


def message_of(error: BaseException) -> str:
    """Return the error's message; for a selector, with a caret under the error's place."""
    caret = getattr(error, "caret", None)
    if caret is not None:
        return f"invalid selector\n{caret()}"
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    if isinstance(error, OSError) and error.errno in OUTPUT_ERRNOS:
        quiet_stdout()
        return f"cannot write: {error.strerror}"
    return "; ".join([str(error), *getattr(error, "__notes__", ())])


def say(text: str, prefix: str = "Error: ") -> None:
    """Print one message on standard error, unless that is closed."""
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        quiet_stdout()
    try:
        click.echo(f"{prefix}{text}", err=True)
    except (OSError, ValueError):
        return


def quiet_stdout() -> None:
    """Redirect standard output to /dev/null, so that the interpreter's last flush cannot fail."""
    try:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
    except (OSError, ValueError):
        return
