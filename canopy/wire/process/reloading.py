"""Hot reload: the configuration is read again, and what can take effect does (SIGHUP, `canopy
reload`).

All or nothing: a configuration that is invalid changes nothing, and the reason is logged and told
to who asked. So it is with keys, which are read first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from canopy.wire.config import ConfigError, NodeConfig
from canopy.wire.hot_settings import NOW, adopt, compare
from canopy.wire.log import Log
from overlay.operating.commands import ChangedSetting


@dataclass(frozen=True, slots=True)
class Source:
    """Where a process has its configuration from. `file`: its path, "" if there is none; `read`
    merges file, environment and flags again, and raises ConfigError."""

    file: str
    read: Callable[[], NodeConfig]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a reload has changed, or why nothing (`refused`)."""

    read: tuple[str, ...]
    changed: tuple[ChangedSetting, ...] = ()
    refused: str = ""


class Reloading:
    """Reads the configuration again, and hands on what changed."""

    def __init__(
        self,
        source: Source | None,
        log: Log,
        apply: Callable[[NodeConfig, NodeConfig], None],
        reread: Callable[[], tuple[tuple[str, ...], str]],
    ) -> None:
        """`apply` is called with the configuration that holds and with the one that holds from now
        on; `reread` reads what else a reload covers (keys), names it, and says what of it is
        refused."""
        self._source = source
        self._log = log
        self._apply = apply
        self._reread = reread

    def reload(self, held: NodeConfig) -> Outcome:
        """Compare with the configuration that `held` until now."""
        self._log.info("reloading", file="" if self._source is None else self._source.file)
        read, refused = self._reread()
        if refused:
            self._log.error("reload_refused", reason=refused)
            return Outcome(read, refused=refused)
        if self._source is None:
            return Outcome(read)
        try:
            found = self._source.read()
        except ConfigError as error:
            self._log.error("reload_refused", reason=error, node="goes on as before")
            return Outcome(read, refused=str(error))
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
        return Outcome(read, changed)
