"""Which options a group has, whether those that a program asks for are the same, and which can be
changed."""

from __future__ import annotations

from typing import NamedTuple, get_type_hints

import msgspec
from msgspec.structs import replace

from matching import SelectorError, compile_selector
from overlay.stream_client import AttachGroup, EditGroup
from streams.access.reasons import OPTIONS, SELECTOR
from streams.log.group_state import GroupOptions
from streams.programs.group.messages import Wanted
from streams.programs.reader.messages import ReadFrom
from streams.selectors import same_selector

_FIELDS = GroupOptions.__struct_fields__
_TYPES = get_type_hints(GroupOptions, include_extras=True)
_SPOKEN = {"deliveries": "max_deliver", "delay_seconds": "delay"}
"""Names of options to programs, where they are others."""


class MemberRefusal(NamedTuple):
    """Why something is not done."""

    code: str
    reason: str


def wanted_by(command: AttachGroup | EditGroup) -> Wanted:
    """What a program asks of a group."""
    start = ReadFrom("new")
    if isinstance(command, AttachGroup):
        start = ReadFrom(command.start, command.at)
    return Wanted(start, **{name: getattr(command, name) for name in _FIELDS})


def options_of(wanted: Wanted) -> GroupOptions | MemberRefusal:
    """The options of a group that is founded as a program asks."""
    return _with(GroupOptions(), wanted)


def fault_of(wanted: Wanted) -> MemberRefusal | None:
    """Why no group can have these options; None: one can."""
    options = options_of(wanted)
    return options if isinstance(options, MemberRefusal) else fault_of_selector(options.selector)


def fault_of_selector(selector: str) -> MemberRefusal | None:
    """Why a group cannot have this selector. One that cannot be read matches nothing, rather than
    everything."""
    try:
        if selector:
            compile_selector(selector)
    except SelectorError as error:
        return MemberRefusal(SELECTOR, error.caret())
    return None


def edited(known: GroupOptions, wanted: Wanted) -> GroupOptions | MemberRefusal:
    """The options of a group that has others from now on: what is None stays."""
    if wanted.by is not None and wanted.by != known.by:
        has = f"is in order by {known.by}" if known.by else "is in no order by a key"
        return MemberRefusal(
            OPTIONS,
            f"by: the group {has}, which is for good: rows of one key may be with several members "
            "by now, or be done with in another order, and no later promise could undo that. Found "
            "another group",
        )
    return _with(known, wanted)


def _with(known: GroupOptions, wanted: Wanted) -> GroupOptions | MemberRefusal:
    asked = {name: getattr(wanted, name) for name in _FIELDS}
    for name, value in asked.items():
        try:
            asked[name] = msgspec.convert(value, type=_TYPES[name] | None)
        except msgspec.ValidationError as error:
            reason = str(error).replace("Expected", "expected")
            return MemberRefusal(OPTIONS, f"{_SPOKEN.get(name, name)}: {reason}, not {value!r}")
    return replace(known, **{name: v for name, v in asked.items() if v is not None})


def obstacle(known: GroupOptions, wanted: Wanted) -> MemberRefusal | None:
    """Why a program cannot become a member of a group; None: it can."""
    for name in _FIELDS:
        asked, has = getattr(wanted, name), getattr(known, name)
        if asked is None or asked == has:
            continue
        if name != "selector":
            said = f"the group's {_SPOKEN.get(name, name)} is {has!r}, not {asked!r}"
            return MemberRefusal(OPTIONS, f"{said}: leave it out, or take another group")
        if not same_selector(has, asked):
            return MemberRefusal(SELECTOR, f"the group has another selector: {has or 'all rows'}")
    return None
