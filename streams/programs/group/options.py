"""The options of groups: their limits, their change, and their comparison with those that a program
asks for."""

from __future__ import annotations

from typing import get_type_hints

import msgspec
from msgspec.structs import replace

from matching import same_selector
from overlay.command_faults import fault_in_rows_selector
from overlay.stream_client import AttachGroup, EditGroup
from streams.access.reasons import OPTIONS, SELECTOR, Cause
from streams.log.group_state import GroupOptions
from streams.programs.group.messages import Wanted
from streams.programs.reader.messages import ReadFrom

_FIELDS = GroupOptions.__struct_fields__
_TYPES = get_type_hints(GroupOptions, include_extras=True)
_SPOKEN = {"deliveries": "max_deliver", "delay_seconds": "delay"}
"""The options that programs know by other names."""


def wanted_by(command: AttachGroup | EditGroup) -> Wanted:
    """Return the options that a program asks for."""
    start = ReadFrom("new")
    if isinstance(command, AttachGroup):
        start = ReadFrom(command.start, command.at)
    return Wanted(start, **{name: getattr(command, name) for name in _FIELDS})


def options_of(wanted: Wanted) -> GroupOptions | Cause:
    """Return the options of a new group, or the reason why none can have them."""
    return _with(GroupOptions(), wanted)


def fault_of(wanted: Wanted) -> Cause | None:
    """Return the reason why no group can have these options; None: one can."""
    return fault_in(options_of(wanted))


def fault_in(options: GroupOptions | Cause) -> Cause | None:
    """Return the reason why no group can have these options; None: one can."""
    return options if isinstance(options, Cause) else fault_of_selector(options.selector)


def fault_of_selector(selector: str) -> Cause | None:
    """Return the reason why no group can have this selector; None: one can."""
    fault = fault_in_rows_selector(selector)
    return fault and Cause(*fault)


def edited(known: GroupOptions, wanted: Wanted) -> GroupOptions | Cause:
    """Return the options of a group after a change, or the reason why it is refused. Options that
    are None stay."""
    if wanted.by is not None and wanted.by != known.by:
        has = f"is in order by {known.by}" if known.by else "is in no order by a key"
        return Cause(
            OPTIONS,
            f"by: the group {has}, which is for good: rows of one key may be with several members "
            "by now, or be done with in another order, and no later promise could undo that. Found "
            "another group",
        )
    return _with(known, wanted)


def _with(known: GroupOptions, wanted: Wanted) -> GroupOptions | Cause:
    asked = {name: getattr(wanted, name) for name in _FIELDS}
    for name, value in asked.items():
        try:
            asked[name] = msgspec.convert(value, type=_TYPES[name] | None)
        except msgspec.ValidationError as error:
            reason = str(error).replace("Expected", "expected")
            return Cause(OPTIONS, f"{_SPOKEN.get(name, name)}: {reason}, not {value!r}")
    return replace(known, **{name: v for name, v in asked.items() if v is not None})


def obstacle(known: GroupOptions, wanted: Wanted) -> Cause | None:
    """Return the reason why a program cannot join a group with these options; None: it can."""
    for name in _FIELDS:
        asked, has = getattr(wanted, name), getattr(known, name)
        if asked is None or asked == has:
            continue
        if name != "selector":
            said = f"the group's {_SPOKEN.get(name, name)} is {has!r}, not {asked!r}"
            return Cause(OPTIONS, f"{said}: leave it out, or take another group")
        if not same_selector(has, asked):
            return Cause(SELECTOR, f"the group has another selector: {has or 'all rows'}")
    return None
