"""Bad input: whatever a peer says, the node is unharmed, and nothing runs hot."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.link_world import LinkWorld, Note
from overlay.links.messages import PROTOCOL, Ack, Batch, Bye, Frame, Hello, Welcome
from overlay.machine import Message, Peer, ProtocolError


@pytest.mark.parametrize(("protocol", "overlay"), [(PROTOCOL + 1, "test"), (PROTOCOL, "other")])
def test_another_protocol_or_overlay_is_refused_with_a_reason(protocol: int, overlay: str) -> None:
    world = LinkWorld()
    b = world.host("b")
    b.links.on_accepted(99)
    hello = Hello(protocol, overlay, Peer("x", "x:1"), 1, 0, 0, 1, "b", 1, 0, 1)
    b.links.on_frame(99, hello)
    [bye] = b.frames(Bye)
    assert str(protocol) in bye.reason or overlay in bye.reason
    assert bye.final
    assert b.counts["link_errors"] == 1
    assert b.links.sessions() == ()


def test_nodes_of_two_overlays_never_link() -> None:
    world = LinkWorld()
    a, b = world.host("a"), world.host("b", overlay="other")
    a.send(b, 1)
    world.run(60.0)
    [down] = a.downs()
    assert "overlay 'test' is not this one" in down.reason
    assert len(a.dialled) == 1
    assert not b.events


@pytest.mark.parametrize(
    "frame",
    [Batch(0, 0, 1, 0, False, b""), Ack(0, 1), Welcome(1, "test", Peer("x", ""), 1, 0, 0, 1)],
)
def test_frames_before_the_handshake_close_the_connection(frame: Batch | Ack | Welcome) -> None:
    world = LinkWorld()
    b = world.host("b")
    b.links.on_accepted(99)
    b.links.on_frame(99, frame)
    assert len(b.frames(Bye)) == 1
    assert b.counts["link_errors"] == 1
    b.links.on_frame(99, frame)  # too late: nothing listens any more
    assert b.counts["link_errors"] == 1


def test_who_says_nothing_is_closed_after_the_handshakes_time() -> None:
    world = LinkWorld()
    b = world.host("b")
    for connection in range(1_100, 2_300):
        b.links.on_accepted(connection)
    assert len(b.links.connections()) == 1_024
    world.run(5.0)
    assert len(b.links.connections()) == 0
    a = world.host("a")
    a.send(b, 1)
    world.run(1.0)
    assert b.numbers(a) == [1]


def test_a_protocol_error_in_a_handler_ends_the_session_not_the_node() -> None:
    world = LinkWorld()
    a, b, c = world.host("a"), world.host("b"), world.host("c")

    def refuse(peer: Peer, message: Message) -> None:
        if isinstance(message, Note) and message.number == 13:
            raise ProtocolError("thirteen")

    b.on_message = refuse
    a.send(b, 12)
    world.run(1.0)
    a.send(b, 13, 14)
    world.run(0.1)
    assert [down.reason for down in b.downs()] == ["thirteen"]
    assert [(down.reason, down.lost) for down in a.downs()] == [("thirteen", (Note(13), Note(14)))]
    assert b.counts["link_errors"] == 1
    c.send(b, 1)
    a.send(b, 15)
    world.run(3.0)
    assert b.numbers(c) == [1]
    assert b.numbers(a)[-1] == 15


def test_other_errors_of_a_handler_are_our_own_and_propagate() -> None:
    world = LinkWorld()
    a, b = world.host("a"), world.host("b")

    def fail(peer: Peer, message: Message) -> None:
        raise RuntimeError("a fault of this node")

    b.on_message = fail
    a.send(b, 1)
    with pytest.raises(RuntimeError):
        world.run(1.0)


def test_who_breaks_the_protocol_again_and_again_waits_longer_and_longer() -> None:
    world = LinkWorld()
    a, b = world.host("a"), world.host("b")

    def refuse(peer: Peer, message: Message) -> None:
        raise ProtocolError("always")

    b.on_message = refuse
    for _ in range(600):
        a.send(b, 1)
        world.run(0.1)
    assert len(b.downs()) <= 12  # in 60 s: 0.4 s, 0.8 s … 10 s
    assert b.counts["link_errors"] == len(b.downs())
    assert len(a.dialled) <= 90  # a's own back-off, from new each time it gives up


def test_bytes_that_are_no_frame_cost_the_connection_only() -> None:
    world = LinkWorld()
    a, b = world.pair()
    [connection] = b.links.connections()
    b.links.on_garbage(connection, "not MessagePack")
    a.send(b, 2)
    world.run(3.0)
    assert b.numbers(a) == [1, 2]
    assert b.counts["link_errors"] >= 1
    assert not a.downs()
    assert not b.downs()


SMALL = st.integers(-1, 3)
PEERS = st.sampled_from([Peer("a", "a:1"), Peer("b", "b:1"), Peer("x", "x:1"), Peer("y", "")])
BODIES = st.sampled_from(
    [b"", b"\xc1", b"\x90", b"\x91\x93\xa4Note\x05\xa0", zlib.compress(b"\x90")]
)


@st.composite
def frames(draw: st.DrawFn) -> Frame:
    kind = draw(st.integers(0, 4))
    if kind == 0:
        body = draw(BODIES)
        digest = draw(st.sampled_from([zlib.crc32(body), 0]))
        return Batch(draw(SMALL), draw(SMALL), draw(SMALL), digest, draw(st.booleans()), body)
    if kind == 1:
        return Ack(draw(SMALL), draw(SMALL), draw(st.booleans()))
    if kind == 2:
        return Bye("because", draw(st.booleans()), draw(st.booleans()))
    name = st.sampled_from(["a", "b", "x", ""])
    overlay = draw(st.sampled_from(["test", "test", "test", "other"]))
    known = (PROTOCOL, overlay, draw(PEERS), draw(SMALL), draw(SMALL), draw(SMALL), 1 << 20)
    if kind == 3:
        return Hello(*known, draw(name), draw(SMALL), draw(SMALL), draw(SMALL))
    return Welcome(*known, draw(SMALL), draw(SMALL), draw(SMALL))


INPUT = st.one_of(
    st.tuples(st.integers(0, 7), frames()),
    st.tuples(st.integers(0, 7), st.sampled_from(["accept", "close", "garbage", "send", "wait"])),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(INPUT, max_size=40))
def test_any_frames_in_any_state_leave_the_node_at_work(inputs: list[tuple[int, object]]) -> None:
    world = LinkWorld()
    b, honest = world.host("b"), world.host("honest")
    honest.send(b, 1)
    for number, what in inputs:
        links = b.links
        # Small numbers are connections of the world, dialled or accepted; the others are forged.
        connection = number if number < 4 else 1_000 + number
        if isinstance(what, Frame):
            links.on_frame(connection, what)
        elif what == "accept" and connection >= 1_000 and connection not in links.connections():
            links.on_accepted(connection)
        elif what == "close":
            links.on_closed(connection, "gone")
        elif what == "garbage":
            links.on_garbage(connection, "noise")
        elif what == "send":
            links.send(Peer("x", "x:1"), Note(number))
        elif what == "wait":
            world.run(float(number))
        links.flush()
    world.run(90.0)
    honest.send(b, 2)
    world.run(15.0)
    assert b.numbers(honest)[-1] == 2
    assert len(b.links.connections()) <= 1
    assert b.links._connections.awaiting_hello == 0
