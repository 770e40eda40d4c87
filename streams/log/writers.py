"""Decides who may append to a stream, by its entry and by the policy; the leader of a shard asks.

A stream names its writers (`StreamOptions.writers`): producers, nodes or tenants. A stream without
writers takes rows from everybody who may append at all. A tenant appends only to streams that the
policy names for it, and a program with a token only to streams that the token names (`named_in`).
A producer's name is authentic: that of a tenant's program begins with the tenant
(streams/tenant_rules.py), and that of a node's own producer with the node's id, which a certificate
proves.
"""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Annotated, Final, NamedTuple

import msgspec

from overlay.machine import NodeId

ANYBODY: Final = "*"
KINDS: Final = ("producer", "node", "tenant")
WRITERS_MOST: Final = 64
"""The limit of writers of a stream, and of streams of a tenant or token. Guess."""

Names = Annotated[
    tuple[Annotated[str, msgspec.Meta(min_length=1, max_length=256)], ...],
    msgspec.Meta(max_length=WRITERS_MOST),
]


class Asker(msgspec.Struct, frozen=True, array_like=True):
    """The tenant of a request. The leader's node fills it in from its policy and ignores what the
    tenant's node sends."""

    tenant: str
    streams: tuple[str, ...]
    """The streams to which the policy lets it append: names, or patterns with `*` and `?`."""


class Access(NamedTuple):
    """A stream's name and writers, as the leader of a shard knows them."""

    stream: str = ""
    writers: tuple[str, ...] = ()


def fault_in_writers(writers: Sequence[str]) -> str:
    """Return why these are no valid writers; "" if they are."""
    for one in writers:
        kind, colon, name = one.partition(":")
        if one != ANYBODY and not (colon and name and kind in KINDS):
            return (
                f"{one} is no writer: producer:NAME, node:ID, tenant:NAME, or {ANYBODY} for anybody"
            )
    return ""


def named_in(stream: str, names: Sequence[str]) -> bool:
    """Whether one of the names, or patterns, is that of the stream."""
    return any(fnmatchcase(stream, name) for name in names)


def denial(access: Access, producer: str, node: NodeId, asker: Asker | None) -> str:
    """Return why this producer of a node may not append; "" if it may."""
    if asker is not None and not named_in(access.stream, asker.streams):
        return (
            f"the policy does not let the tenant {asker.tenant} append to stream {access.stream}: "
            f"it names the streams of each tenant"
        )
    if not access.writers or ANYBODY in access.writers:
        return ""
    own = {f"producer:{producer}", f"node:{node}"}
    if asker is not None:
        own.add(f"tenant:{asker.tenant}")
    if own.isdisjoint(access.writers):
        return (
            f"stream {access.stream} takes rows of its writers only, {', '.join(access.writers)}, "
            f"and not of {producer} at node {node}"
        )[:500]
    return ""
