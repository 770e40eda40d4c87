"""The ledger of an issuer: the certificates it has signed, and its limits. It is in the key folder,
and only the issuer reads it.

One line of JSON for each key; the newest line of a key counts. An id is counted until its
certificate can no longer be renewed, or it is revoked. That bounds the number of ids that stolen
tokens, or inviting programs, can create. A lying issuer keeps no ledger: it is bounded by its
certificate (`restrictions`, `live_ids`).
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Annotated, Final

import msgspec

from canopy.wire.durable import write_durably
from canopy.wire.keys.certificates import DAY, NODE_DAYS, RENEW_UNTIL, Holder, node_id
from canopy.wire.keys.restrictions import Restriction
from overlay.machine import NodeId

HOUR: Final = 3_600.0
KEPT_FOR: Final = (NODE_DAYS + RENEW_UNTIL) * DAY
"""Seconds after its last signature for which an id can be renewed."""

GENERATIONS_MOST: Final = 3
"""The most further ids that one key may get while a certificate is valid: a node whose state is
lost gets a new id, and one invitation must not create any number of them."""

COMPACT_AFTER: Final = 64
"""The number of lines beyond twice the keys at which the file is rewritten."""

Count = Annotated[int, msgspec.Meta(ge=0, le=10_000_000)]


class LimitError(Exception):
    """The issuer may not sign one more id; the message names the limit."""


class Signed(msgspec.Struct, frozen=True):
    """The record of a certificate signed for a key. Times are seconds since 1970."""

    key: str  # hex
    generation: int
    tenant: str
    place: int
    first: float
    last: float
    invitation: str = ""
    renewed: tuple[float, ...] = msgspec.field(default=(), name="anew")
    """When it got its latest ids after the first."""
    role: str = ""
    """The role's name; "": signed by a release that did not record it."""
    by: str = ""
    """The fingerprint of the issuer's certificate."""

    @property
    def node(self) -> NodeId:
        """The present id of the key."""
        return node_id(bytes.fromhex(self.key), self.generation)


class Limit(msgspec.Struct, frozen=True):
    """Limits on the ids that an issuer signs; 0: any number."""

    ids: Count = 0
    """The most ids at a time."""
    hour: Count = 0
    """The most new ids within an hour."""


Limits = dict[str, Limit]
"""Limits by tenant; "*": of all tenants together."""

ALL: Final = "*"


class Ledger:
    """The files ``signed`` and ``limits.json`` of a key folder."""

    def __init__(self, folder: Path) -> None:
        """`folder` is the key folder."""
        self._path = folder / "signed"
        self._limits = folder / "limits.json"

    # --- limits ---

    def limits(self) -> Limits:
        """Return the limits. Raises LimitError if the file cannot be read: then nothing may be
        signed."""
        try:
            return msgspec.json.decode(self._limits.read_bytes(), type=Limits)
        except FileNotFoundError:
            return {}
        except (OSError, msgspec.MsgspecError) as error:
            raise LimitError(f"cannot read {self._limits}: {error}") from None

    def set_limit(self, tenant: str, limit: Limit) -> None:
        """Set the limit of a tenant, or ("*") of all; a limit of zeros is removed."""
        limits = self.limits() | {tenant: limit}
        kept = {name: each for name, each in limits.items() if each.ids or each.hour}
        write_durably(self._limits, msgspec.json.encode(kept))

    # --- what was signed ---

    def signed(self) -> dict[str, Signed]:
        """Return the records by key. An incomplete last line is ignored."""
        found: dict[str, Signed] = {}
        for line in self._lines():
            try:
                one = msgspec.json.decode(line, type=Signed)
            except msgspec.MsgspecError:
                continue
            found[one.key] = one
        return found

    def _lines(self) -> list[bytes]:
        try:
            return self._path.read_bytes().splitlines()
        except FileNotFoundError:
            return []

    def live(self, now: float, revoked: Collection[NodeId]) -> dict[str, Signed]:
        """Return the records whose ids can still be renewed and are not revoked, by key."""
        return {
            key: one
            for key, one in self.signed().items()
            if one.last + KEPT_FOR > now and one.node not in revoked
        }

    def enter(
        self,
        holder: Holder,
        key: bytes,
        now: float,
        revoked: Collection[NodeId],
        restriction: Restriction | None,
        invitation: str = "",
        per_hour: int = 0,
        by: str = "",
    ) -> Holder:
        """Record, durably, that a node is about to be signed; returns the holder with its place.
        `per_hour`: the most new ids of `invitation` within an hour, 0 for any number; `by`: the
        fingerprint of the issuer's certificate. Raises LimitError."""
        live = self.live(now, revoked)
        known = live.pop(key.hex(), None)
        generation = holder.generation
        if known is not None and generation < known.generation:
            raise LimitError("this key has become another node: it has a later generation")
        is_new = known is None or generation > known.generation
        if is_new:
            self._check(live.values(), known, holder.tenant, now)
            recent = _news(one for one in live.values() if one.invitation == invitation)
            if per_hour and sum(at > now - HOUR for at in recent) >= per_hour:
                raise LimitError(f"the token may be used {per_hour} times an hour; try again later")
        place = self._place(live.values(), holder, known, restriction)
        renewed = () if known is None else known.renewed
        if known is not None and is_new:
            renewed = (*[at for at in renewed if at > now - NODE_DAYS * DAY], now)
            if len(renewed) > GENERATIONS_MOST:
                raise LimitError(
                    f"this key got {GENERATIONS_MOST} new ids within {NODE_DAYS:g} days: ask for "
                    "an invitation, with another key"
                )
        first, used = (now, invitation) if known is None else (known.first, known.invitation)
        role = holder.role.name.lower()
        self._write(
            Signed(key.hex(), generation, holder.tenant, place, first, now, used, renewed, role, by)
        )
        return holder._replace(place=place)

    def _check(
        self, others: Collection[Signed], known: Signed | None, tenant: str, now: float
    ) -> None:
        """Raise LimitError if no further id may be signed. `known`: the key's former record."""
        limits = self.limits()
        for name in (ALL, tenant):
            limit = limits.get(name)
            if limit is None:
                continue
            counted = [one for one in others if name in (ALL, one.tenant)]
            before = [] if known is None else [known]
            whose = "" if name == ALL else f" of the tenant {name}"
            if limit.ids and len(counted) >= limit.ids:
                raise LimitError(f"this issuer signs {limit.ids} ids{whose} at most, and has")
            if limit.hour and sum(at > now - HOUR for at in _news(counted + before)) >= limit.hour:
                raise LimitError(
                    f"this issuer signs {limit.hour} new ids{whose} an hour; try again later"
                )

    def _place(
        self,
        live: Iterable[Signed],
        holder: Holder,
        known: Signed | None,
        restriction: Restriction | None,
    ) -> int:
        if restriction is None or not restriction.ids:
            return 0
        taken = {one.place for one in live}
        wanted = holder.place if known is None else known.place
        if 1 <= wanted <= restriction.ids and wanted not in taken:
            return wanted
        for place in range(1, restriction.ids + 1):
            if place not in taken:
                return place
        raise LimitError(f"this issuer may sign {restriction.ids} ids, and has")

    def _write(self, one: Signed) -> None:
        lines = self._lines()
        kept = self.signed() | {one.key: one}
        if len(lines) > 2 * len(kept) + COMPACT_AFTER or (lines and not self._ends_whole()):
            write_durably(self._path, b"".join(map(_line, kept.values())))
            return
        file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        with open(file, "ab") as out:
            out.write(_line(one))
            out.flush()
            os.fsync(file)

    def _ends_whole(self) -> bool:
        return self._path.read_bytes().endswith(b"\n")


def _news(signed: Iterable[Signed]) -> Iterable[float]:
    """Return the times at which each id was new."""
    return [at for one in signed for at in (one.first, *one.renewed)]


def _line(one: Signed) -> bytes:
    return msgspec.json.encode(one) + b"\n"
