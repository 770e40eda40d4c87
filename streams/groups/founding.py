"""Which options a group has, and whether those that a program asks for are the same."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from streams.consuming.durable import same_selector
from streams.groups.messages import OPTIONS, SELECTOR, Wanted
from streams.log.group_state import GroupOptions

_FIELDS = GroupOptions.__struct_fields__


class Refusal(NamedTuple):
    """Why something is not done."""

    code: str
    reason: str


def options_of(wanted: Wanted) -> GroupOptions | Refusal:
    """The options of a group that is founded as a program asks."""
    default = GroupOptions()
    asked = ((getattr(wanted, name), getattr(default, name)) for name in _FIELDS)
    chosen = tuple(default if value is None else value for value, default in asked)
    try:
        return msgspec.convert(chosen, type=GroupOptions)
    except msgspec.ValidationError as error:
        return Refusal(OPTIONS, str(error))


def obstacle(known: GroupOptions, wanted: Wanted) -> Refusal | None:
    """Why a program cannot be a member of a group; None: it can."""
    for name in _FIELDS:
        asked, has = getattr(wanted, name), getattr(known, name)
        if asked is None or asked == has:
            continue
        if name != "selector":
            return Refusal(OPTIONS, f"the group's {name} is {has!r}, not {asked!r}")
        if not same_selector(has, asked):
            return Refusal(SELECTOR, f"the group has another selector: {has or 'all rows'}")
    return None
