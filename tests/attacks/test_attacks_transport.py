"""What strangers do to the port of a node with keys: real sockets, one node in this process."""

from __future__ import annotations

import contextlib
import io
import random
import socket
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import trio
import trio.testing

from canopy.wire import driver
from canopy.wire.config import NodeConfig
from canopy.wire.constants import QUEUE_LIMIT, READ_SIZE
from canopy.wire.driver import TrioDriver
from canopy.wire.folder import DataFolder
from canopy.wire.keys.authority import revoke
from canopy.wire.keys.enrolment import PREAMBLE
from canopy.wire.keys.key_folder import KeyFolder
from canopy.wire.log import Log, Sparing
from canopy.wire.process.node_process import NOTES_MOST, NodeProcess, build_node
from canopy.wire.process.security import NodeSecurity
from canopy.wire.transport import acceptor
from canopy.wire.transport.accept_limits import BURST, HANDSHAKES, AcceptLimits, HandshakeTurns
from canopy.wire.transport.framing import NODE_FRAMES, FrameReader
from canopy.wire.transport.tls import Chain, TlsError, TlsPipe, new_context
from overlay.links.messages import PROTOCOL, Ack, Batch, Bye, Hello
from overlay.machine import Peer
from overlay.rights import Principal, Role
from tests.support.real.echo_node import EchoNode
from tests.support.real.keys import Keys
from tests.support.real.wire_rig import PATIENCE, Rig, rig

pytestmark = pytest.mark.trio

HELLO = NODE_FRAMES.encode(Hello(PROTOCOL, "canopy", Peer("x", "x:1"), 1, 0, 0, 1 << 20))
HOUR = 3600.0


def rest_of(rests: list[float]) -> Callable[[float], Awaitable[None]]:
    """`trio.sleep` that notes for how long."""

    async def sleep(seconds: float) -> None:
        rests.append(seconds)
        await trio.sleep(seconds)

    return sleep


@pytest.fixture
def keys(tmp_path: Path) -> Keys:
    return Keys(tmp_path / "keys")


async def closed(stream: trio.SocketStream) -> bytes:
    """What comes until the node closes the connection."""
    found = b""
    with trio.fail_after(PATIENCE):
        try:
            while data := await stream.receive_some():
                found += data
        except trio.BrokenResourceError:
            pass
    return found


def heard_nothing(node: Rig) -> bool:
    """Whether nothing of any connection reached the node."""
    return all(found[0] in ("start", "tick") for found in node.node.inputs)


async def believed(node: Rig, folder: KeyFolder, keys: Keys) -> Principal:
    """A node with these keys connects: as whom the other one knows it."""
    stream = await node.dial()
    pipe = TlsPipe(keys.security(folder), False)
    await pipe.handshake(stream)
    await stream.send_all(pipe.encrypt([NODE_FRAMES.encode(Ack(1, 2))]))
    accepted = await node.has("accepted")
    await node.has("frames")
    principal = accepted[2]
    assert isinstance(principal, Principal)
    return principal


async def refused(node: Rig, security: NodeSecurity | ssl.SSLContext) -> str:
    """A connection with this is refused: what its side hears."""
    stream = await node.dial()
    pipe = TlsPipe(security if isinstance(security, NodeSecurity) else Bare(security), False)
    try:
        with trio.fail_after(PATIENCE):
            await pipe.handshake(stream)  # TLS 1.3: this side is done before the other has looked
            while True:
                data = await stream.receive_some()
                if not data:
                    return "closed"
                pipe.decrypt(data)
    except (TlsError, trio.BrokenResourceError) as error:
        return str(error)
    finally:
        with trio.fail_after(PATIENCE):
            while not node.driver.counters.tls_refused:
                await trio.sleep(0.01)
        assert heard_nothing(node)


class Bare:
    """A side that believes anybody."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._context = context

    def context(self, is_server: bool) -> ssl.SSLContext:
        return self._context

    def identify(self, chain: Chain) -> Principal:
        return Principal("", Role.LEAF, "")


def bare(*, versions: tuple[ssl.TLSVersion, ssl.TLSVersion] | None = None) -> ssl.SSLContext:
    context = new_context(False)
    context.verify_mode = ssl.CERT_NONE
    if versions is not None:
        context.minimum_version, context.maximum_version = versions
    return context


async def test_nodes_know_each_other_by_their_certificates(keys: Keys) -> None:
    folder = keys.folder("b", Role.MEMBER)
    async with rig(security=keys.security()) as node:
        principal = await believed(node, folder, keys)
    found = folder.certificate()
    assert found is not None
    assert principal == found.principal
    assert (principal.role, len(principal.id)) == (Role.MEMBER, 32)


async def test_frames_of_any_size_pass_in_both_directions(keys: Keys) -> None:
    big = Batch(0, 0, 0, 0, False, random.Random(1).randbytes(900_000))
    async with (
        rig(security=keys.security()) as one,
        rig(security=keys.security(keys.folder("b"))) as other,
    ):
        dialled = other.driver.dial(one.address)
        await other.has("opened")
        accepted = (await one.has("accepted"))[1]
        for rig_, number in ((one, accepted), (other, dialled)):
            rig_.driver._connections[number]._reader.open()
        for rig_, number in ((one, accepted), (other, dialled)):

            def write(rig_: Rig = rig_, number: object = number) -> None:
                for count in range(5):
                    rig_.driver.write(number, Ack(count, 1))  # type: ignore[arg-type]
                    rig_.driver.write(number, big)  # type: ignore[arg-type]

            rig_.driver.turn(write)
        with trio.fail_after(PATIENCE):
            while len(one.node.frames) < 10 or len(other.node.frames) < 10:
                await trio.sleep(0.01)
    expected = [frame for count in range(5) for frame in (Ack(count, 1), big)]
    assert one.node.frames == expected
    assert other.node.frames == expected


@pytest.mark.parametrize(
    "words",
    [HELLO, b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00" + bytes(range(256)) * 3, b"\x16"],
    ids=["plaintext", "http", "garbage", "half"],
)
async def test_what_is_no_tls_reaches_nobody(keys: Keys, words: bytes) -> None:
    async with rig(security=keys.security(), connect_timeout=0.3) as node:
        stream = await node.dial()
        await stream.send_all(words)
        assert len(await closed(stream)) < 150  # an alert, or a goodbye that says why
        assert heard_nothing(node)
        await believed(node, keys.folder("b"), keys)


async def test_an_older_version_of_tls_is_refused(keys: Keys) -> None:
    versions = (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_2)
    async with rig(security=keys.security()) as node:
        assert "version" in await refused(node, bare(versions=versions))


async def test_nobody_without_a_certificate_is_heard(keys: Keys) -> None:
    async with rig(security=keys.security()) as node:
        assert "certificate required" in await refused(node, bare())


async def test_nor_one_of_another_overlay_with_the_same_name(keys: Keys, tmp_path: Path) -> None:
    other = Keys(tmp_path / "other")
    folder = other.folder("b")
    context = bare()
    context.load_cert_chain(folder.path / "node.pem", folder.path / "node.key")
    async with rig(security=keys.security()) as node:
        assert "alert" in await refused(node, context)
        assert "certificate" in await refused(node, other.security(folder))  # and the other way


async def test_nor_a_node_that_signs_certificates_itself(keys: Keys, tmp_path: Path) -> None:
    liar = keys.folder("b")
    forged = Keys(tmp_path / "forged").folder("c", Role.ADMIN)
    context = bare()
    pem = tmp_path / "chain.pem"
    pem.write_bytes((forged.path / "node.pem").read_bytes() + (liar.path / "node.pem").read_bytes())
    context.load_cert_chain(pem, forged.path / "node.key")
    async with rig(security=keys.security()) as node:
        assert "alert" in await refused(node, context)


@pytest.mark.parametrize(
    ("begins", "days", "word"),
    [(-8 * 24 * HOUR, 7.0, "expired"), (2 * HOUR, 7.0, "alert")],
    ids=["expired", "not yet valid"],
)
async def test_a_certificate_holds_for_its_time(
    keys: Keys, begins: float, days: float, word: str
) -> None:
    folder = keys.folder("b", begins=begins, days=days)
    async with rig(security=keys.security()) as node:
        assert word in await refused(node, keys.security(folder))


async def test_clocks_may_differ_by_less_than_an_hour(keys: Keys) -> None:
    async with rig(security=keys.security()) as node:
        await believed(node, keys.folder("b", begins=0.9 * HOUR), keys)


async def test_a_certificate_for_another_overlay_is_refused(keys: Keys) -> None:
    folder = keys.folder("b", overlay="another")
    context = bare()
    context.load_cert_chain(folder.path / "node.pem", folder.path / "node.key")
    async with rig(security=keys.security()) as node:
        await refused(node, context)


async def test_who_is_revoked_is_cut_off_and_not_let_in_again(keys: Keys) -> None:
    folder, security = keys.folder("b"), keys.security()
    found = folder.certificate()
    assert found is not None
    async with rig(security=security) as node:
        await believed(node, folder, keys)
        revoke(keys.issuer, (found.principal.id,))
        security.load()
        node.driver.recheck()
        reason = (await node.has("closed"))[2]
        assert "revoked" in str(reason)
        node.node.inputs.clear()
        await refused(node, keys.security(folder))


async def test_a_list_of_revocations_needs_the_issuers_signature(
    keys: Keys, tmp_path: Path
) -> None:
    other = Keys(tmp_path / "other")
    node, security = keys.folder("b"), keys.security(keys.folder("c"))
    found = node.certificate()
    assert found is not None
    revoke(other.issuer, (found.principal.id,))
    forged = other.issuer.revocations("canopy")[1]
    assert security.accept(forged) == 0
    assert security.accept(b"garbage") == 0
    revoke(keys.issuer, (found.principal.id,))
    first = keys.issuer.revocations("canopy")[1]
    assert security.accept(first) == 1
    revoke(keys.issuer, ("0" * 32,))
    assert security.accept(keys.issuer.revocations("canopy")[1]) == 2
    assert security.accept(first) == 2  # an older one takes nothing back
    assert security.revocations.ids == (found.principal.id, "0" * 32)


async def test_no_session_can_be_resumed_past_the_checks(keys: Keys) -> None:
    async with rig(security=keys.security()) as node:
        host, port = node.address.split(":")
        folder = keys.folder("b")
        context = bare()
        context.load_cert_chain(folder.path / "node.pem", folder.path / "node.key")

        def look() -> ssl.SSLSession | None:
            with (
                socket.create_connection((host, int(port)), PATIENCE) as plain,
                context.wrap_socket(plain) as wrapped,
            ):
                wrapped.settimeout(0.2)
                with contextlib.suppress(TimeoutError):
                    wrapped.recv(1)  # a ticket would come with what is read
                return wrapped.session

        session = await trio.to_thread.run_sync(look)
        assert session is None or not session.has_ticket


async def test_one_byte_at_a_time_is_not_waited_for(keys: Keys) -> None:
    async with rig(security=keys.security(), connect_timeout=0.3) as node:
        stream = await node.dial()
        await stream.send_all(b"\x16")
        with trio.move_on_after(PATIENCE) as scope:
            try:
                while True:
                    await stream.send_all(b"\x03")
                    await trio.sleep(0.05)
            except trio.BrokenResourceError:
                pass
        assert not scope.cancelled_caught
        assert heard_nothing(node)


async def test_connections_beyond_what_an_address_may_have_are_not_looked_at(keys: Keys) -> None:
    security = keys.security()
    security._local_limits = AcceptLimits(per_second=1000.0, awaiting=8)
    async with rig(security=security, connect_timeout=PATIENCE) as node:
        silent = [await node.dial() for _ in range(60)]
        with trio.fail_after(PATIENCE):
            while node.driver.counters.accepts_refused < 52:
                await trio.sleep(0.01)
        assert node.driver.counters.accepts_refused == 52
        assert heard_nothing(node)
        for stream in silent:
            await stream.aclose()
        with trio.fail_after(PATIENCE):
            while security._local_limits._awaiting:
                await trio.sleep(0.01)
        await believed(node, keys.folder("b"), keys)


async def test_a_flood_is_refused_before_anything_is_made_for_it(
    keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No stream, no task, and a rest after some: one who is not of the flood gets in."""
    made: list[trio.SocketStream] = []
    served = TrioDriver._accept

    async def accept(self: TrioDriver, stream: trio.SocketStream, host: str, port: int) -> None:
        made.append(stream)
        await served(self, stream, host, port)

    monkeypatch.setattr(TrioDriver, "_accept", accept)
    rests: list[float] = []
    monkeypatch.setattr(acceptor, "REST", 0.001)
    monkeypatch.setattr(acceptor, "trio", SimpleNamespace(**vars(trio) | {"sleep": rest_of(rests)}))
    security = keys.security()
    security._local_limits = AcceptLimits(per_second=4.0, awaiting=2)
    async with rig(security=security, connect_timeout=PATIENCE) as node:
        flood = [await node.dial() for _ in range(200)]
        with trio.fail_after(PATIENCE):
            while node.driver.counters.accepts_refused < 198:
                await trio.sleep(0.01)
        assert len(made) == 2
        assert rests.count(0.001) >= 3
        for stream in flood:
            await stream.aclose()
        security._local_limits = AcceptLimits()
        await believed(node, keys.folder("b"), keys)


async def test_addresses_of_one_ipv6_network_are_one() -> None:
    limits = AcceptLimits(per_second=3.0, awaiting=2)
    hosts = [f"2001:db8::{number:x}" for number in range(1, 5)]
    assert [limits.admits(host, 1.0) for host in hosts] == [True, True, False, False]
    limits.done(hosts[3])
    assert limits.admits("2001:db8::ffff", 1.0)
    assert limits.admits("2001:db8:0:1::1", 1.0)
    assert limits.admits("::ffff:192.0.2.1", 1.0)
    assert limits.admits("192.0.2.1", 1.0)
    assert not limits.admits("192.0.2.1", 1.0)


async def test_a_key_has_four_connections_and_the_newest_stay(keys: Keys) -> None:
    folder = keys.folder("b")
    async with rig(security=keys.security()) as node:
        await believed(node, keys.folder("c"), keys)
        for _ in range(6):
            await believed(node, folder, keys)
        with trio.fail_after(PATIENCE):
            while len([found for found in node.node.inputs if found[0] == "closed"]) < 2:
                await trio.sleep(0.01)
        gone = [found for found in node.node.inputs if found[0] == "closed"]
        accepted = [found[1] for found in node.node.inputs if found[0] == "accepted"]
        assert [found[1] for found in gone] == accepted[1:3]
        assert {found[2] for found in gone} == {"more than 4 connections of one key"}
        assert node.driver.counters.key_refused == 2


@pytest.mark.parametrize("shared", ["address", "tenant"])
async def test_keys_of_one_address_or_tenant_leave_room_for_others(
    keys: Keys, shared: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever role they have: here a leaf of a tenant, elsewhere a member of none."""
    monkeypatch.setattr(driver, "SHARED_CONNECTIONS", 3)
    if shared == "address":
        monkeypatch.setattr(driver, "is_loopback", lambda host: False)
    tenant, role = ("acme", Role.LEAF) if shared == "tenant" else ("", Role.MEMBER)
    folders = [keys.folder(f"n{number}", role, tenant=tenant) for number in range(5)]
    async with rig(security=keys.security()) as node:
        for folder in folders[:3]:
            await believed(node, folder, keys)
        assert not [found for found in node.node.inputs if found[0] == "closed"]
        for folder in folders[3:]:
            await refused_later(node, folder, keys)
        with trio.fail_after(PATIENCE):
            while len([found for found in node.node.inputs if found[0] == "closed"]) < 2:
                await trio.sleep(0.01)
        assert node.driver.counters.shared_refused == 2
        reasons = {str(found[2]) for found in node.node.inputs if found[0] == "closed"}
        whose = "the tenant acme" if tenant else "one address"
        assert reasons == {f"more than 3 connections of {whose}"}
        if shared == "tenant":
            await believed(node, keys.folder("other"), keys)
            assert node.driver.counters.shared_refused == 2


async def refused_later(node: Rig, folder: KeyFolder, keys: Keys) -> None:
    """A node with these keys is known, and cut off for that."""
    stream = await node.dial()
    pipe = TlsPipe(keys.security(folder), False)
    await pipe.handshake(stream)
    await closed(stream)


async def test_a_peer_that_never_reads_is_cut_off_at_a_bound(keys: Keys) -> None:
    async with rig(security=keys.security()) as node:
        await believed(node, keys.folder("b"), keys)
        number = (await node.has("accepted"))[1]
        assert isinstance(number, int)
        part = Batch(0, 0, 0, 0, False, bytes(1_000_000))
        most = 0
        for _ in range(40):
            node.driver.turn(node.driver.write, number, part)
            found = node.driver._connections.get(number)
            most = max(most, 0 if found is None else found._outlet.waiting)
            await trio.lowlevel.checkpoint()
        assert "does not read" in str((await node.has("closed"))[2])
        assert QUEUE_LIMIT < most < QUEUE_LIMIT + (2 << 20)
        await believed(node, keys.folder("c"), keys)


async def test_an_address_has_so_many_accepts_in_a_second() -> None:
    limits = AcceptLimits(per_second=20.0, awaiting=1000)
    assert sum(limits.admits("a", 1.0) for _ in range(100)) == 20
    assert limits.admits("b", 1.0)
    assert sum(limits.admits("a", 1.5) for _ in range(100)) == 10


async def test_what_comes_after_a_goodbye_is_not_kept(keys: Keys) -> None:
    """TLS has a word for *nothing more comes*. OpenSSL reads nothing behind it, so what a peer
    sends all the same would wait for ever, a gigabyte a second."""
    server = TlsPipe(keys.security().program_side(), True)
    client = TlsPipe(Bare(bare()), False)
    for _ in range(3):  # a handshake by hand
        for here, there in ((client, server), (server, client)):
            with contextlib.suppress(ssl.SSLWantReadError):
                here._object.do_handshake()
            there._incoming.write(here._outgoing.read())
    said = client.encrypt([b"last words"])
    with contextlib.suppress(ssl.SSLWantReadError):
        client._object.unwrap()
    assert server.decrypt(said + client._outgoing.read()) == b"last words"
    assert server.is_over
    for _ in range(3):
        assert server.decrypt(bytes(READ_SIZE)) == b""
    assert server._incoming.pending == 0


async def test_a_goodbye_ends_a_connection_as_its_end_does(keys: Keys) -> None:
    folder = keys.folder("b")
    async with rig(security=keys.security()) as node:
        stream = await node.dial()
        pipe = TlsPipe(keys.security(folder), False)
        await pipe.handshake(stream)
        await node.has("accepted")
        with contextlib.suppress(ssl.SSLWantReadError):
            pipe._object.unwrap()
        await stream.send_all(pipe._outgoing.read())
        assert "closed it" in str((await node.has("closed"))[2])
        await stream.aclose()


async def test_in_a_flood_from_many_addresses_the_oldest_stranger_goes(
    keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each address is within its limits; together they may not take all places."""
    monkeypatch.setattr(driver, "STRANGERS", 4)
    async with rig(security=keys.security(), connect_timeout=10 * PATIENCE) as node:
        silent = [await node.dial() for _ in range(3)]
        half = [await node.dial() for _ in range(3)]
        for stream in half:  # the beginning of a handshake
            await stream.send_all(b"\x16\x03\x01")
        await believed(node, keys.folder("b"), keys)
        assert await closed(silent[0]) == b""
        assert await closed(silent[1]) == b""
        node.node.inputs.clear()
        await believed(node, keys.folder("c"), keys)
        with trio.fail_after(PATIENCE):
            while len(node.driver._unknown) > 3:
                await trio.sleep(0.01)
        for stream in (*silent, *half):
            await stream.aclose()
        with trio.fail_after(PATIENCE):
            while node.driver._unknown or node.driver._strangers:
                await trio.sleep(0.01)
        assert len(node.driver._connections) <= 2


async def test_what_strangers_do_is_written_down_sparingly() -> None:
    now = [0.0]
    sparing = Sparing(lambda: now[0])
    found = []
    for step in range(200):  # 20 s
        now[0] = step / 10
        found.append((sparing.due("refused"), sparing.due("another") if step == 5 else 0))
    assert [times for times, _ in found if times] == [1, 100]
    assert sum(times for _, times in found) == 1


async def test_handshakes_of_all_other_machines_have_one_rate(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Thirty addresses want twenty each second: a newcomer waits for one of each at most, and who
    goes away while it waits keeps nobody up."""
    turns, served = HandshakeTurns(), list[tuple[float, str]]()
    begin = trio.current_time()

    async def comes(host: str, patience: float = 60.0) -> None:
        with trio.move_on_after(patience):
            await turns.wait(host)
            served.append((trio.current_time() - begin, host))

    async with trio.open_nursery() as nursery:
        for _ in range(20):
            for number in range(30):
                nursery.start_soon(comes, f"10.0.0.{number}", 60.0 if number % 3 else 0.5)
        await trio.sleep(1.0)
        assert len(served) <= BURST + HANDSHAKES + 1
        nursery.start_soon(comes, "10.0.1.1")
    (newcomer,) = [at for at, host in served if host == "10.0.1.1"]
    assert newcomer - 1.0 <= 31 / HANDSHAKES
    assert len(served) > 400
    await trio.sleep(1.0)
    before = trio.current_time()
    for _ in range(64):  # what a node that starts needs: at once
        await turns.wait("10.0.0.1")
    assert trio.current_time() == before
    assert not turns._line


async def test_no_handshake_with_another_machine_begins_before_its_turn(
    keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a node, and of who asks for a certificate."""
    security, asked = keys.security(), list[str]()

    async def never(host: str) -> None:
        asked.append(host)
        await trio.sleep_forever()

    monkeypatch.setattr(security, "turn", never)
    async with rig(security=security, connect_timeout=0.2) as node:
        for words in (b"\x16\x03\x01" + bytes(200), PREAMBLE):
            stream = await node.dial()
            await stream.send_all(words)
            assert await closed(stream) == b""
        assert asked == ["127.0.0.1"] * 2
        assert heard_nothing(node)


async def test_a_stranger_without_keys_cannot_fill_the_log() -> None:
    """Whatever of it is no frame, and however often it connects."""
    async with rig() as node:
        for number in range(40):
            stream = await node.dial()
            await stream.send_all((b"GET / HTTP/1.0\r\n\r\n", b"\xff" * 64)[number % 2])
            await closed(stream)
            await stream.aclose()
        lines = [one for one in node.log.getvalue().splitlines() if " debug " not in one]
        assert [one.split()[2] for one in lines] == ["garbage"]


async def test_neighbours_that_come_and_go_are_written_down_now_and_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("canopy.wire.process.node_process.ALONE_AFTER", 0.0)
    config = NodeConfig(listen="127.0.0.1:0", data=str(tmp_path), peers=("a:1",))
    folder, out = DataFolder(tmp_path), io.StringIO()
    process = NodeProcess(config, folder, Log("info", out), build_node)
    process.driver.attach(EchoNode(process.driver), process)
    for number in range(1_000):
        process.driver.node.neighbours = number % 2  # type: ignore[misc]
        process._log_neighbours()
    assert len(out.getvalue().splitlines()) == NOTES_MOST
    process.close_shards()
    folder.close()


async def test_a_node_without_keys_hears_that_the_other_one_has_some(keys: Keys) -> None:
    async with rig(security=keys.security()) as node:
        stream = await node.dial()
        await stream.send_all(HELLO)
        reader = FrameReader(NODE_FRAMES)
        (bye,) = reader.feed(await closed(stream))
        assert isinstance(bye, Bye)
        assert "canopy keys invite" in bye.reason
        assert heard_nothing(node)
        with trio.fail_after(PATIENCE):
            while "it is a node without keys" not in node.log.getvalue():
                await trio.sleep(0.005)


async def test_a_node_with_keys_that_dials_one_without_is_told_why() -> None:
    async with rig() as node:
        stream = await node.dial()
        await stream.send_all(b"\x16\x03\x01\x02\x00\x01\x00")
        reader = FrameReader(NODE_FRAMES)
        (bye,) = reader.feed(await closed(stream))
        assert isinstance(bye, Bye)
        assert "this node has none" in bye.reason
