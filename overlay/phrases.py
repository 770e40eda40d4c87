"""Words and numbers for people: what a node answers, and what is printed or shown."""

from __future__ import annotations

import re
import shlex
from typing import Final

UNITS: Final = (("d", 86_400), ("h", 3_600), ("min", 60))


ACTING: Final = re.compile(
    "[\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e007f]"
)
"""Characters that JSON leaves as they are and a terminal does not show: it acts on them (DEL and
C1 controls), turns the text around them (bidirectional controls), or shows nothing."""


def shown_json(text: str) -> str:
    """A JSON text that means the same, without characters that a terminal does not show."""
    return ACTING.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    units = found[0].encode("utf-16-be").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def visible(text: str) -> str:
    """Escape unprintable characters, which could move a terminal's cursor."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in text)


def in_one_line(said: object) -> str:
    """The text of an error, or another text, with a blank for each line end and run of blanks."""
    return " ".join(str(said).split())


def as_argument(path: object) -> str:
    """A path as one argument of a command that a person is to copy into a shell."""
    return shlex.quote(str(path))


def readable_by_others(path: object, mode: str = "600") -> str:
    """Say that others can read a secret file, and what to do."""
    command = f"chmod {mode} {as_argument(path)}"
    return f"{path} can be read by other users; see who has, and then: {command}"


def counted(number: int, one: str, many: str | None = None) -> str:
    """`number` with its noun: 1 link, 2 links, 1,000 deliveries. `many`: the plural, if it is not
    `one` with an s."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def no_majority(stream: str, answering: int, replicas: int, shard: int | None = None) -> str:
    """Say that nothing can be written to a stream for want of a majority; all reports use this
    text. `shard`: its number, in a stream with several."""
    which = stream if shard is None else f"shard {shard} of {stream}"
    return f"no majority: {answering} of {replicas} replicas of {which} answer"


def no_stream(name: str) -> str:
    """Say that there is no stream of this name, and what to do next."""
    return (
        f"there is no stream {name}: `canopy stream ls` lists those that there are, and "
        f"`canopy stream add {as_argument(name)}` founds one"
    )


def duration(seconds: float) -> str:
    """Seconds in the largest fitting unit: 12 s, 3 min, 2 h, 5 d."""
    for unit, size in UNITS:
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def size(count: float) -> str:
    """Bytes in the fitting unit: 12 bytes, 3.4 KB, 5.6 GB."""
    for unit in ("bytes", "KB", "MB"):
        if count < 1_000:
            return f"{count:,.0f} {unit}" if unit == "bytes" else f"{count:,.1f} {unit}"
        count /= 1_000
    return f"{count:,.1f} GB"


# --- texts of users in tables for spreadsheets ---

FORMULA: Final = re.compile(r"\s*[=+\-@\t\r\uff1d\uff0b\uff0d\uff20]")
"""The beginning of a text that spreadsheets calculate, which may send what is beside it elsewhere
(OWASP, CSV injection)."""

NUMBER: Final = re.compile(r"[+-]?[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?")
CONTROL: Final = re.compile(f"[\0-\x08\x0b\x0c\x0e-\x1f]|{ACTING.pattern}")
"""Characters that a terminal acts on, other than tabs and line ends."""


def harmless(text: str) -> str:
    """A text that no spreadsheet calculates and no terminal acts on."""
    if FORMULA.match(text) and not NUMBER.fullmatch(text):
        text = f"'{text}"
    return CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
