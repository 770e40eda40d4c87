"""The rules for tenants' messages to streams (overlay/tenants/confinement.py).

A tenant reads and appends. The leader of a shard intersects the selector of its reading with what
the tenant may see; each row that it appends has to match what it may publish, and its stream has to
be one that the policy names for it (streams/log/writers.py). Only operators found, change and erase
streams. Tenants have no groups and transactions: the members of a group share its rows, and an
undecided half blocks others.

A program that comes with the name of a durable consumer or producer ends the earlier program of
that name. Tenants have names of their own: ``TENANT/NAME`` at the leaders of shards.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from matching import SelectorError
from overlay.command_faults import NODE_PREFIX
from overlay.machine import Message
from overlay.rights import Principal
from overlay.tenants.confinement import Rule, Ruling, refuse
from overlay.tenants.policy import Confinement
from streams.access.reasons import MALFORMED, POLICY, SELECTOR
from streams.directory.messages import ChangeStream, EraseStream, FoundStream, StreamRefused
from streams.log.batches import decode_rows
from streams.log.writers import Asker
from streams.programs.group.messages import (
    AskGroups,
    ChangeGroup,
    EndDeadLetters,
    ForgetGroup,
    GroupRefused,
    JoinGroup,
    KeepMembers,
    LeaveGroup,
    MemberRefused,
    SettleLeases,
)
from streams.programs.producer.messages import (
    FORKED,
    AppendRefused,
    AppendRows,
    JoinFork,
    OpenProducer,
)
from streams.programs.reader.messages import (
    NAME_MOST,
    AskRow,
    CommitPosition,
    ReadingRefused,
    ReadShard,
)
from streams.programs.transaction.messages import (
    AskHalves,
    DecideHalf,
    HalfNotKnown,
    HalfRefused,
    PrepareHalf,
)


def _read(known: Confinement, sender: Principal, message: ReadShard) -> Ruling:
    if denial := known.denial(sender.tenant):
        refusal = ReadingRefused(message.shard, message.reading, POLICY, denial)
        return Ruling(None, (refusal,), 1)
    permitted = known.narrow(sender.tenant, "")
    try:
        known.narrow(sender.tenant, message.selector)
    except SelectorError as error:
        refusal = ReadingRefused(message.shard, message.reading, SELECTOR, str(error)[:500])
        return Ruling(None, (refusal,), 1)
    durable = message.durable
    if durable is not None:
        durable = msgspec.structs.replace(durable, name=named(sender, durable.name))
        if len(durable.name) > NAME_MOST:
            reason = f"the name of a tenant's durable consumer has at most {NAME_MOST} characters"
            refusal = ReadingRefused(message.shard, message.reading, SELECTOR, reason)
            return Ruling(None, (refusal,), 1)
    return Ruling(msgspec.structs.replace(message, permitted=permitted, durable=durable))


def named(sender: Principal, name: str) -> str:
    """The name of a tenant's durable consumer or producer at the leader of a shard. The producer of
    the node itself keeps its name, which nobody else may use."""
    is_own = name.partition(FORKED)[0] == NODE_PREFIX + sender.id
    return name if is_own else f"{sender.tenant}/{name}"


def _commit(known: Confinement, sender: Principal, message: CommitPosition) -> Ruling:
    durable = named(sender, message.durable)
    if len(durable) > NAME_MOST:
        return Ruling(None, (), 1)  # there is none of that name
    return Ruling(msgspec.structs.replace(message, durable=durable))


def _produce(
    known: Confinement, sender: Principal, message: AppendRows | JoinFork | OpenProducer
) -> Ruling:
    producer = named(sender, message.producer)
    if len(producer) > NAME_MOST:
        reason = f"the name of a tenant's producer has at most {NAME_MOST} characters, with its own"
        refusal = AppendRefused(message.shard, message.request, MALFORMED, reason)
        return Ruling(None, (refusal,), 1)
    asker = Asker(sender.tenant, known.of(sender.tenant).streams)
    return Ruling(msgspec.structs.replace(message, producer=producer, asker=asker))


def _append(known: Confinement, sender: Principal, message: AppendRows) -> Ruling:
    denial, code = known.denial(sender.tenant), POLICY
    if not denial:
        try:
            rows = [row for b in message.batches for row in decode_rows(b.rows, b.count)]
            allowed = known.may_publish(sender.tenant, [row.attributes for row in rows])
        except ValueError as error:
            code, denial = MALFORMED, str(error)[:500]
        else:
            if all(allowed):
                return _produce(known, sender, message)
            may = known.of(sender.tenant).publish or "nothing"
            denial = f"policy {known.version} permits {sender.tenant} to append only: {may}"
    refusal = AppendRefused(message.shard, message.request, code, denial[:500])
    return Ruling(None, (refusal,), 1)


def _stream(known: Confinement, sender: Principal, message: Any) -> Ruling:
    return Ruling(None, (StreamRefused(message.ticket, POLICY, OPERATORS),), 1)


def _join(known: Confinement, sender: Principal, message: JoinGroup) -> Ruling:
    return Ruling(None, (MemberRefused(message.shard, message.member, POLICY, OPERATORS),), 1)


def _groups(known: Confinement, sender: Principal, message: Any) -> Ruling:
    return Ruling(None, (GroupRefused(message.ticket, message.place, POLICY, OPERATORS),), 1)


def _half(known: Confinement, sender: Principal, message: Any) -> Ruling:
    transaction = getattr(message, "transaction", "")
    answer = HalfRefused(message.shard, message.request, transaction, POLICY, OPERATORS)
    return Ruling(None, (answer,), 1)


OPERATORS: Final = "this is for nodes without a tenant: tenants read and append"

STREAM_RULES: Final[Mapping[type[Message], Rule]] = {
    ReadShard: _read,
    CommitPosition: _commit,
    AppendRows: _append,
    **dict.fromkeys((OpenProducer, JoinFork), _produce),
    **dict.fromkeys((FoundStream, ChangeStream, EraseStream), _stream),
    JoinGroup: _join,
    **dict.fromkeys((AskGroups, EndDeadLetters, ForgetGroup, ChangeGroup), _groups),
    **dict.fromkeys((PrepareHalf, DecideHalf, AskHalves), _half),
    **dict.fromkeys((AskRow, KeepMembers, LeaveGroup, SettleLeases, HalfNotKnown), refuse),
}
"""Beside `overlay.tenants.confinement.RULES`."""
