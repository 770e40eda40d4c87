"""Which settings a running node takes on, and which need a restart (`canopy reload`, SIGHUP)."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from canopy.wire.config import NodeConfig
from overlay.operating.commands import ChangedSetting
from overlay.settings import SettingsGroup

NOW: Final = "now"
RESTART: Final = "restart"

HOT: Final = frozenset(
    (
        *("peers", "drain_timeout", "log.level", "log.format", "metrics.listen"),
        *("health.period", "health.file", "health.max_age"),
        *("clients.queue", "clients.programs", "clients.resume", "clients.parked"),
    )
)
"""Keys that take effect at once: what the process reads each time that it needs it, or opens anew.
All others are of machines that are built with them, of what is open, or of what other nodes were
told."""


def keys_of(config: SettingsGroup, prefix: str = "") -> dict[str, Any]:
    """The values of a configuration by key, those of groups as ``group.key``."""
    found: dict[str, Any] = {}
    for field in msgspec.structs.fields(type(config)):
        value = getattr(config, field.name)
        if isinstance(value, SettingsGroup):
            found.update(keys_of(value, f"{prefix}{field.name}."))
        else:
            found[prefix + field.name] = value
    return found


def shown(value: Any) -> str:
    """A value as the configuration file has it, in short."""
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or "none"
    if isinstance(value, bool):
        return str(value).lower()
    return '""' if value == "" else str(value)


def compare(before: NodeConfig, after: NodeConfig) -> tuple[ChangedSetting, ...]:
    """What differs, in the order of the fields, and since when each holds. Removed peers are
    dialled until a restart; those that were added are dialled now."""
    old, new = keys_of(before), keys_of(after)
    changed = []
    for key, value in new.items():
        if value != old[key]:
            hot = key in HOT and not (key == "peers" and set(old[key]) - set(value))
            effective = NOW if hot else RESTART
            # A token is a secret, and the log is read by others.
            texts = ("…", "…") if key == "join" else (shown(old[key]), shown(value))
            changed.append(ChangedSetting(key, *texts, effective))
    return tuple(changed)


def adopt(before: NodeConfig, after: NodeConfig) -> NodeConfig:
    """`before` with the values of `after` of all keys that take effect at once."""
    changes: dict[str, Any] = {}
    for key in sorted(HOT):
        group, _, name = key.rpartition(".")
        if not group:
            changes[name] = getattr(after, name)
            continue
        held = changes.get(group, getattr(before, group))
        changes[group] = msgspec.structs.replace(
            held, **{name: getattr(getattr(after, group), name)}
        )
    return msgspec.structs.replace(before, **changes)
