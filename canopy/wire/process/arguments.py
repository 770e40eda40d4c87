"""Takes secrets out of this process's arguments, which every user of the machine can read."""

from __future__ import annotations

import re
from typing import Final

from canopy.wire.keys.tokens import PREFIX

TOKEN: Final = re.compile(re.escape(PREFIX.encode()) + rb"[^\0]+")

_ARG_START: Final = 45
_ARG_END: Final = 46
"""Places in /proc/self/stat behind the command's name (proc_pid_stat(5): fields 48 and 49)."""


def hide_tokens() -> bool:
    """Overwrite the tokens among the arguments, as ``ps`` and /proc show them. Whether none is left
    to be seen; where there is no /proc that is not known, and False."""
    try:
        with open("/proc/self/stat", "rb") as file:
            found = file.read().rpartition(b")")[2].split()
        begin, end = int(found[_ARG_START]), int(found[_ARG_END])
        with open("/proc/self/mem", "r+b", buffering=0) as memory:
            memory.seek(begin)
            shown = memory.read(end - begin)
            hidden = TOKEN.sub(lambda one: b"x" * len(one[0]), shown)
            if hidden != shown:
                memory.seek(begin)
                memory.write(hidden)
        with open("/proc/self/cmdline", "rb") as file:
            return TOKEN.search(file.read()) is None
    except (OSError, ValueError, IndexError, OverflowError):
        return False
