"""Who may append to a stream, whatever its rows say, and what a sync makes of forged ones."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio

from canopy.gateway.access import ANYBODY, GatewayRules, RequestRefused
from canopy.gateway.publication import publish
from canopy.sync.applier import Applier
from canopy.sync.assembler import Assembler
from canopy.sync.capture import Capture
from canopy.sync.changes import INSERT, PAYLOAD_TYPE, Change, ChangeDrafts, Commit
from canopy.sync.databases import is_passing
from canopy.sync.errors import OpenStreamError
from canopy.sync.row_filter import RowFilter
from canopy.sync.stream import ClientStream, last_commit
from canopy.sync.verification import SyncComparison
from canopy.wire.control.scopes import refusal
from canopy.wire.token_file import ProgramToken, TokenFile
from harness.logs import SHARD
from overlay.client import AppendEvents, Command, Draft, GetStreams, Streams
from overlay.info import ShardInfo, StreamInfo
from overlay.rights import Principal, Role
from overlay.stream_client import BeginProducer, DecideTransaction, PrepareEvents
from overlay.tenants.confinement import RULES, outcome
from overlay.tenants.policy import Confinement, Policy, TenantPolicy
from streams.access.reasons import POLICY
from streams.directory.entry import StreamOptions, fault_in_options
from streams.log.writers import Access, Asker, denial
from streams.programs.producer.messages import (
    AppendRefused,
    AppendRows,
    JoinFork,
    OpenProducer,
    ProducerIsOpen,
    RowsAppended,
)
from streams.programs.transaction.messages import HalfRefused
from streams.shard.stored_replica import ShardTerms
from streams.tenant_rules import STREAM_RULES
from tests.support.databases.memory import MemoryStream
from tests.support.shards.producing_world import HalfWorld, led, row_batch
from tests.support.sync_pair import Pair

SHOP = Access("shop", ("producer:sync.shop",))
ROWS = (row_batch(0),)


def test_the_leader_takes_rows_of_a_stream_s_writers_only() -> None:
    """Also in the session of one, which has a number that can be guessed; nobody else's opening
    ends it."""
    world, leader, replica = led()
    replica.describe(ShardTerms(access=SHOP))
    session = world.opened(leader, "sync.shop").session
    stranger = world.peers[-1]
    for message in (
        OpenProducer(SHARD, 7, "p", "t"),
        OpenProducer(SHARD, 7, "sync.shop~x", "t"),
        OpenProducer(SHARD, 7, "acme/sync.shop", "t"),
        OpenProducer(SHARD, 7, f"@{stranger.id}", "t"),
        AppendRows(SHARD, 7, "p", session, 0, ROWS),
        AppendRows(SHARD, 7, f"@{stranger.id}", 1, 0, ROWS),
    ):
        (answer,) = world.ask(stranger, leader, message)
        assert isinstance(answer, AppendRefused)
        assert (answer.code, answer.request) == (POLICY, 7)
        assert "shop" in answer.reason
    assert isinstance(world.appended(leader, session, 0, *ROWS, producer="sync.shop"), RowsAppended)
    replica.describe(ShardTerms(access=Access("shop", (f"node:{stranger.id}",))))
    (answer,) = world.ask(stranger, leader, OpenProducer(SHARD, 7, f"@{stranger.id}", "t"))
    assert isinstance(answer, ProducerIsOpen)
    (answer,) = world.ask(world.peers[1], leader, OpenProducer(SHARD, 7, "p", "t"))
    assert isinstance(answer, AppendRefused)


def test_halves_are_of_writers_too() -> None:
    world = HalfWorld(1, 4, 3)
    world.run(0.1)
    world.elect(world.peers[0].id)
    world.run(0.5)
    world.alive[world.peers[0].id].describe(ShardTerms(access=SHOP))
    answer = world.prepare(world.peers[0], "t1", 1)
    assert isinstance(answer, HalfRefused)
    assert answer.code == POLICY


def test_a_tenant_appends_to_streams_that_the_policy_names_whatever_its_node_says() -> None:
    may = TenantPolicy("TRUE", "TRUE", streams=("acme_*",))
    known = Confinement(Policy(1, {"acme": may, "mute": TenantPolicy("TRUE", "TRUE")}))
    lie = Asker("operators", ("*",))
    for tenant, stream, is_allowed in (
        ("acme", "acme_log", True),
        ("acme", "shop", False),
        ("mute", "acme_log", False),
        ("unknown", "acme_log", False),
    ):
        sender = Principal("aa", Role.LEAF, tenant)
        for message in (
            AppendRows("s", 1, "p", 1, 0, ROWS, lie),
            OpenProducer("s", 1, "@aa", "t", asker=lie),
            JoinFork("s", 1, "p", 1, 1, lie),
        ):
            taken: Any = outcome({**RULES, **STREAM_RULES}, known, sender, message).message
            if taken is None:
                assert not is_allowed
                continue
            reason = denial(Access(stream), taken.producer, "aa", taken.asker)
            assert bool(reason) is not is_allowed
    asker = Asker("acme", ("*",))
    assert denial(SHOP, "acme/sync.shop", "aa", asker)
    assert not denial(Access("shop", ("tenant:acme",)), "@aa", "aa", asker)
    own = Access("shop", ("producer:acme/sync.shop",))
    assert not denial(own, "acme/sync.shop", "aa", asker)


def test_a_token_of_the_gateway_appends_to_streams_that_it_names(tmp_path: Path) -> None:
    file = TokenFile(tmp_path / "tokens.json")
    access = GatewayRules(file)
    plain = access.grant(file.add("plain", ("publish", "subscribe")))
    named = access.grant(file.add("named", ("publish",), streams=("logs_*",)))
    client: Any = None  # nobody is asked
    for grant, stream in ((plain, "shop"), (plain, "logs_1"), (named, "shop")):
        with pytest.raises(RequestRefused, match=f"does not name stream {stream}") as refused:
            trio.run(publish, client, grant, [Draft({"a": 1})], stream)
        assert refused.value.status == 403
    named.check_stream("logs_1")
    ANYBODY.check_stream("shop")


@pytest.mark.parametrize(
    "command",
    [
        AppendEvents(1, "shop", (Draft({"a": 1}),)),
        BeginProducer(1, "shop", "sync.shop"),
        PrepareEvents(1, "shop", "t", "sync.shop", ()),
        DecideTransaction(1, "shop", "t", True),
    ],
)
def test_a_token_of_a_node_appends_to_streams_that_it_names(command: Command) -> None:
    token = ProgramToken("t", "", ("publish", "subscribe", "observe", "admin"))
    assert "does not name stream shop" in refusal(token, command)
    assert not refusal(ProgramToken("t", "", ("publish",), streams=("shop",)), command)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"writers": ("sync.shop",)}, "is no writer"),
        ({"writers": ("producer:",)}, "is no writer"),
        ({"writers": ("producer:p",), "capture": "a = 1"}, "--capture"),
    ],
)
def test_writers_that_would_let_anybody_in_are_refused(options: Any, said: str) -> None:
    assert said in fault_in_options(StreamOptions(**options))


class Directory:
    """Answers for a node what streams there are."""

    def __init__(self, **writers: tuple[str, ...]) -> None:
        shards = (ShardInfo(0, "", ()),)
        self.streams = {
            name: StreamInfo(name, name, "", 1, 0.0, 0, shards, writers=found)
            for name, found in writers.items()
        }

    def ask(self, command: GetStreams, kind: Any, timeout: float) -> Streams:
        return Streams(1, (self.streams[command.name],))


@pytest.mark.parametrize("is_closed", [False, True])
def test_a_destination_waits_until_the_stream_or_its_origin_is_closed(is_closed: bool) -> None:
    closed = ("producer:sync.shop",)
    directory: Any = Directory(shop=closed if is_closed else (), copy=(), free=("*",))
    copy = directory.streams["copy"]
    directory.streams["copy"] = msgspec.structs.replace(copy, mirror="shop")
    for name in ("shop", "copy"):
        stream = ClientStream(directory, name)
        if is_closed:
            stream.check_closed()
            continue
        with pytest.raises(OpenStreamError, match=f"--writer|{name}") as found:
            stream.check_closed()
        assert is_passing(found.value)
    ClientStream(directory, "free").check_closed()


def forged(position: int, source: str, key: int = 7) -> Draft:
    commit = Commit(position, position, 1.0, source)
    return ChangeDrafts().draft(Change(INSERT, "t", None, (key, "forged")), commit)


@pytest.fixture
def pair(tmp_path: Path) -> Any:
    db = sqlite3.connect(tmp_path / "a.db", isolation_level=None)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, v TEXT)")
    db.execute("INSERT INTO t VALUES (1, 'true')")
    made = Pair(f"sqlite:{tmp_path / 'a.db'}", f"sqlite:{tmp_path / 'b.db'}")
    made.begin()
    yield made, db
    made.close()
    db.close()


def test_a_forged_row_is_found_even_where_the_stream_is_asked(pair: Any) -> None:
    """It lies between the states of both sides that are compared, so that it is expected."""
    made, db = pair
    waited = 0

    def pause(_: float) -> None:
        nonlocal waited
        made.go_on()
        if waited == 0:
            position = made.source.target() + 1
            made.stream.append([forged(position, made.source.id)])
            made.go_on()
        waited += 1

    db.execute("INSERT INTO t VALUES (2, 'true')")
    comparison = SyncComparison(made.source, made.target, made.stream, RowFilter({}), pause=pause)
    found = comparison.run(60)
    assert [(row.table, row.key, row.what) for row in found.differences] == [("t", "7", "surplus")]


def test_what_is_no_change_is_passed_over_by_both_sides_and_counted(pair: Any) -> None:
    """It ended the source's side at every start, and a restart lost what came before it."""
    made, db = pair
    stream: MemoryStream = made.stream
    commit, _, behind = last_commit(stream)
    assert commit is not None
    stream.append([
        Draft({"_op": "schema"}, b"\xc1", PAYLOAD_TYPE),
        Draft({"a": 1}, b"", ""),
        Draft({"_op": "snapshot"}, b"\x90", PAYLOAD_TYPE),
    ])  # fmt: skip
    assert last_commit(stream) == (commit, 0, behind)
    capture = Capture(made.source, stream, RowFilter({}))
    capture.begin()
    db.execute("INSERT INTO t VALUES (2, 'two')")
    while capture.run_once(0):
        pass
    again = Applier(stream, made.target, RowFilter({}))
    again.begin()
    while again.run_once(0):
        pass
    assert (capture.foreign, again.foreign) == (3, 3)
    assert sorted(made.target.scan(again.progress.tables["t"])) == [(1, "true"), (2, "two")]
    again.close()


def test_a_position_stays_before_what_is_not_whole_whoever_appends_between() -> None:
    whole = Change(INSERT, "t", None, (1,), commit=Commit(1, 1, 0.0, ""))
    begun = Change(INSERT, "t", None, (2,))
    (part,) = Assembler().feed([(0, whole), (1, begun), (5, begun)])
    assert (part.next, part.changes) == (1, (whole,))
