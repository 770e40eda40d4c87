"""Takes secrets out of this process's arguments, which every user of the machine can read."""

from __future__ import annotations

import re
from typing import Final

import click

_ARG_START: Final = 45
_ARG_END: Final = 46
"""Places in /proc/self/stat behind the command's name (proc_pid_stat(5): fields 48 and 49)."""


def hide(secret: re.Pattern[bytes]) -> bool:
    """Overwrite what matches `secret` among the arguments, which ``ps`` and /proc show. Returns
    whether it is certainly hidden; without /proc that is unknown, and False."""
    try:
        with open("/proc/self/stat", "rb") as file:
            found = file.read().rpartition(b")")[2].split()
        begin, end = int(found[_ARG_START]), int(found[_ARG_END])
        with open("/proc/self/mem", "r+b", buffering=0) as memory:
            memory.seek(begin)
            shown = memory.read(end - begin)
            hidden = secret.sub(lambda one: b"x" * len(one[0]), shown)
            if hidden != shown:
                memory.seek(begin)
                memory.write(hidden)
        with open("/proc/self/cmdline", "rb") as file:
            return all(set(one[0]) == {ord("x")} for one in secret.finditer(file.read()))
    except (OSError, ValueError, IndexError, OverflowError):
        return False


def hide_secrets(secret: re.Pattern[bytes], option: str, instead: str) -> None:
    """Overwrite a secret among the arguments, and warn; `instead`: how to give it."""
    hidden = "it is overwritten there now" if hide(secret) else "and is there still"
    click.echo(
        f"! {option}: other users could read it among this process's arguments, {hidden}: "
        f"{instead}",
        err=True,
    )
