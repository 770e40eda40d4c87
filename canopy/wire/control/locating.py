"""Where a node's control socket is, and what can go wrong on the way to it.

Everything that can go wrong is a `ControlError` whose text says what, where and what to do; its
class says which exit code a command line gives (DESIGN.md, section 6).
"""

from __future__ import annotations

import os
from pathlib import Path

from canopy.wire.folder import control_path


class ControlError(Exception):
    """The node could not be asked, or did not do what was asked."""


class UnreachableError(ControlError):
    """There is no such node, it does not run, or it went away (exit code 3)."""


class DeniedError(ControlError):
    """The node exists and this user may not talk to it (exit code 4)."""


class CommandTimeoutError(ControlError):
    """No answer in time; the command may still be carried out (exit code 5)."""


class CommandFailed(ControlError):  # noqa: N818 - the word of the reply
    """The node answered `Failed`. `code` is usage, selector, refused, time-out or unknown."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


def find_socket(where: Path) -> Path:
    """The control socket of a data folder, or `where` itself if it is no folder.

    Raises UnreachableError or DeniedError, with what to do.
    """
    try:
        if not where.exists():
            raise UnreachableError(
                f"there is no node at {where}: no such folder or socket; "
                f"start one with `canopy node --data {where}`"
            )
        if not where.is_dir():
            return where
        path = control_path(where)
        if not os.access(where, os.X_OK):
            raise DeniedError(f"the data folder {where} belongs to another user")
        if not path.exists():
            raise UnreachableError(
                f"no node runs at {where}; start it with `canopy node --data {where}`"
            )
    except PermissionError:
        raise DeniedError(f"the data folder {where} belongs to another user") from None
    return path


def explain(error: OSError, path: Path) -> ControlError:
    """An error of connect as one that a person understands."""
    if isinstance(error, PermissionError):
        return DeniedError(f"not allowed to talk to the node at {path}: it belongs to another user")
    if isinstance(error, TimeoutError | BlockingIOError):
        return CommandTimeoutError(f"the node at {path} does not answer")
    if isinstance(error, ConnectionRefusedError):
        return UnreachableError(f"the node at {path} does not run any more")
    return UnreachableError(f"cannot reach the node at {path}: {error}")
