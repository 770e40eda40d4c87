"""Finds a node's control socket, and explains why it cannot be reached."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

from canopy.client.errors import (
    AddressError,
    CommandTimeoutError,
    ControlError,
    DeniedError,
    UnreachableError,
)
from canopy.wire.folder import control_path, default_folder
from overlay.phrases import as_argument

ADDRESS: Final = re.compile(r"[^/\\]+:\d+")


def find_socket(where: str | Path | None) -> Path:
    """Return the control socket of the data folder `where` (None: the default one), or `where`
    itself if it is not a folder.

    Raises UnreachableError, DeniedError or AddressError, with advice.
    """
    given = where
    where = Path(where).expanduser() if where is not None else default_folder()
    try:
        if not where.exists():
            if ADDRESS.fullmatch(str(given)):
                raise AddressError(
                    f"{given} is an address, and who uses a node of another machine needs a token: "
                    f"`canopy access add NAME --address {given}` there writes a file, which is "
                    f"given instead; on its own machine give the node's data folder"
                )
            raise UnreachableError(
                f"there is no node at {where}: no such folder or socket; "
                f"start one with `canopy node --data {as_argument(where)}`"
            )
        if not where.is_dir():
            return where
        path = control_path(where)
        if not os.access(where, os.X_OK):
            raise DeniedError(f"the data folder {where} belongs to another user")
        if not path.exists():
            raise UnreachableError(
                f"no node runs at {where}; start it with `canopy node --data {as_argument(where)}`"
            )
    except PermissionError:
        raise DeniedError(f"the data folder {where} belongs to another user") from None
    return path


def connection_error(error: OSError, path: Path) -> ControlError:
    """Return the ControlError for an error of `connect`, with advice."""
    if isinstance(error, PermissionError):
        return DeniedError(f"not allowed to talk to the node at {path}: it belongs to another user")
    if isinstance(error, TimeoutError | BlockingIOError):
        return CommandTimeoutError(f"the node at {path} does not answer")
    if isinstance(error, ConnectionRefusedError):
        return UnreachableError(f"the node at {path} does not run any more")
    return UnreachableError(f"cannot reach the node at {path}: {error}")
