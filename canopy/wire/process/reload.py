"""Hot reload: read the configuration again, and apply the changes that can take effect (SIGHUP,
`canopy reload`).

All or nothing: an invalid configuration changes nothing, and the reason is logged and returned to
the requester. The same holds for keys, which are read first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from canopy.wire.config import ConfigError, NodeConfig
from canopy.wire.log import Log
from canopy.wire.process.listener import StartError
from canopy.wire.process.security import NodeSecurity
from overlay.operator_commands import ChangedSetting
from overlay.settings import SettingsGroup

if TYPE_CHECKING:
    from canopy.schemas import FolderSchemas

NOW: Final = "now"
RESTART: Final = "restart"

HOT: Final = frozenset(
    (
        *("peers", "drain_timeout", "log.level", "log.format", "metrics.listen"),
        *("health.period", "health.file", "health.max_age"),
        *("clients.queue", "clients.programs", "clients.resume", "clients.parked"),
    )
)
"""Keys that take effect at once: the process reads them each time that it needs them, or can reopen
the resource. All other keys are fixed in machines, in open resources, or at other nodes."""


def keys_of(config: SettingsGroup, prefix: str = "") -> dict[str, Any]:
    """Return the values of a configuration by key, those of groups as ``group.key``."""
    found: dict[str, Any] = {}
    for field in msgspec.structs.fields(type(config)):
        value = getattr(config, field.name)
        if isinstance(value, SettingsGroup):
            found.update(keys_of(value, f"{prefix}{field.name}."))
        else:
            found[prefix + field.name] = value
    return found


def shown(value: Any) -> str:
    """Return a value as the configuration file has it, in short form."""
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or "none"
    if isinstance(value, bool):
        return str(value).lower()
    return '""' if value == "" else str(value)


def compare(before: NodeConfig, after: NodeConfig) -> tuple[ChangedSetting, ...]:
    """Return the changed settings in the order of the fields, and when each takes effect. Removed
    peers are dialled until a restart; added ones are dialled now."""
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
    """Return `before` with the values of `after` for all keys that take effect at once."""
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


@dataclass(frozen=True, slots=True)
class ConfigSource:
    """The sources of a process's configuration. `file`: its path, "" if there is none. `read`
    merges file, environment and flags again, and raises ConfigError."""

    file: str
    read: Callable[[], NodeConfig]


@dataclass(frozen=True, slots=True)
class ReloadOutcome:
    """The changes of a reload, or the reason why there are none (`refused`)."""

    read: tuple[str, ...]
    changed: tuple[ChangedSetting, ...] = ()
    refused: str = ""


def open_schemas(config: NodeConfig) -> FolderSchemas | None:
    """Return the schemas by which events are validated; None if none are configured. Raises
    StartError."""
    if not config.schemas.dir:
        return None
    from canopy.schemas import EventSchemaError, FolderSchemas

    try:
        return FolderSchemas(Path(config.schemas.dir).expanduser(), config.schemas.otherwise)
    except EventSchemaError as error:
        raise StartError(f"schemas.dir: {error}") from None


class Reloading:
    """Reads the configuration again, and passes on the changes."""

    def __init__(
        self,
        source: ConfigSource | None,
        log: Log,
        apply: Callable[[NodeConfig, NodeConfig], None],
        security: NodeSecurity | None = None,
        schemas: FolderSchemas | None = None,
    ) -> None:
        """`apply` is called with the former configuration and the new one; `security` and `schemas`
        are read again as well."""
        self._source = source
        self._log = log
        self._apply = apply
        self._security = security
        self._schemas = schemas

    def _reread(self) -> tuple[tuple[str, ...], str]:
        """Read keys and schemas again. Returns their names, and the reason of a refusal or ""."""
        read: tuple[str, ...] = ()
        if self._security is not None:
            read = ("keys",)
            if refused := self._security.reload():
                return read, refused
        if self._schemas is not None:
            from canopy.schemas import EventSchemaError

            read = (*read, "schemas")
            try:
                self._schemas.reload()
            except EventSchemaError as error:
                return read, str(error)
        return read, ""

    def reload(self, held: NodeConfig) -> ReloadOutcome:
        """Read everything again, and apply the differences from the present configuration
        `held`."""
        self._log.info("reloading", file="" if self._source is None else self._source.file)
        read, refused = self._reread()
        if refused:
            self._log.error("reload_refused", reason=refused)
            return ReloadOutcome(read, refused=refused)
        if self._source is None:
            return ReloadOutcome(read)
        try:
            found = self._source.read()
        except ConfigError as error:
            self._log.error("reload_refused", reason=error, node="goes on as before")
            return ReloadOutcome(read, refused=str(error))
        if found.overlay == NodeConfig().overlay:  # then the certificate says which it is
            found = msgspec.structs.replace(found, overlay=held.overlay)
        changed = compare(held, found)
        if any(each.effective == NOW for each in changed):
            self._apply(held, adopt(held, found))
        for each in changed:
            self._log.info(
                "setting_changed",
                key=each.key,
                before=each.before,
                after=each.after,
                effective=each.effective,
            )
        read = (self._source.file or "environment", *read)
        waiting = sum(each.effective != NOW for each in changed)
        self._log.info("reloaded", read=",".join(read), changed=len(changed), restart=waiting)
        return ReloadOutcome(read, changed)
