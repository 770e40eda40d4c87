"""The parsers, each as a function of bytes that returns or raises what it may raise."""

from __future__ import annotations

import atexit
import contextlib
import io
import json
import shutil
import tempfile
from base64 import b64encode
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import NamedTuple

import h11
import mqtt5
import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding

from canopy.client.publication import Drafting
from canopy.feeds import read_feed
from canopy.feeds.cloudevents import cloudevent_draft
from canopy.feeds.constants import FORMATS
from canopy.feeds.drafts import BadEventError
from canopy.feeds.structured import cloudevent_object
from canopy.gateway.access import RequestRefused
from canopy.gateway.constants import HEAD_LIMIT
from canopy.gateway.events import drafts_of
from canopy.gateway.mqtt.messages import message_of, publish_packet
from canopy.gateway.mqtt.packet_check import MalformedPacketError
from canopy.gateway.mqtt.packets import UNFORESEEN, packet_size, read_packet
from canopy.gateway.mqtt.topics import TopicFilterError, parse_filter
from canopy.sim.world.signer import SimulatedSigner
from canopy.traces.analysis.parsing.lines import LineParser
from canopy.traces.health_file import HealthFileError, decode_health
from canopy.wire.config import ConfigError, load_config
from canopy.wire.keys.certificates import (
    CertificateError,
    Holder,
    authority_certificate,
    is_authority,
    is_signed_by,
    load_der,
    node_certificate,
    read_der,
)
from canopy.wire.keys.enrolment import (
    ANSWERS,
    REQUESTS,
    Denied,
    Enrol,
    Issued,
    RenewCertificate,
    Word,
)
from canopy.wire.keys.policies import parse_policy, read_policy, sign_policy
from canopy.wire.keys.revocations import Revocations
from canopy.wire.keys.revocations import read as read_revocations
from canopy.wire.keys.revocations import sign as sign_revocations
from canopy.wire.keys.seals import (
    SEALED,
    SealFile,
    SealFileError,
    SealKey,
    Seals,
    parse_seals,
)
from canopy.wire.keys.tokens import Token, TokenError, read_token, write_token
from canopy.wire.token_file import TokenFile, TokensError
from canopy.wire.transport.codec import ProtocolError, WireCodec
from canopy.wire.transport.framing import (
    COMMAND_FRAMES,
    MALFORMED,
    NODE_FRAMES,
    REPLY_FRAMES,
    FrameReader,
)
from harness.logs import EventBatch, encode_batches
from matching import SelectorError, compile_selector
from overlay.client import Draft, Event, Publish, Subscribe
from overlay.links.messages import Hello
from overlay.machine import Peer
from overlay.records import pack_block, recover
from overlay.rights import Role
from overlay.tenants.policy import Policy, PolicyError, TenantPolicy
from overlay.upper_tree.event_proofs import FALSE, EventProofs
from streams.log.batches import (
    BatchHead,
    MalformedChunkError,
    Row,
    rows_of,
)
from streams.log.chunk import EVENTS, ChunkId, genesis, pack
from streams.log.recovery import scan
from streams.log.verify import MalformedReceiptError, parse_receipt
from streams.log.zones import decode_zones, encode_zones, zone_map


class Target(NamedTuple):
    """A parser: `run` raises nothing, as what it may raise is caught in it. `seeds` are inputs that
    it accepts."""

    run: Callable[[bytes], None]
    seeds: Callable[[], list[bytes]]


TARGETS: dict[str, Target] = {}


def target(seeds: Callable[[], list[bytes]]) -> Callable[[Callable[[bytes], None]], None]:
    def register(run: Callable[[bytes], None]) -> None:
        TARGETS[run.__name__] = Target(run, seeds)

    return register


def _frames() -> list[bytes]:
    hello = Hello(10, "canopy", Peer("a" * 16, "127.0.0.1:4470"), 1, 0, 0, 1 << 20)
    return [NODE_FRAMES.encode(hello)]


@target(_frames)
def wire_frames(data: bytes) -> None:
    """What a peer sends; the reader keeps no more than its limit."""
    reader = FrameReader(NODE_FRAMES)
    for at in range(0, len(data), 7):
        reader.feed(data[at : at + 7])
        assert reader.buffered <= NODE_FRAMES.limit + 7


CODEC = WireCodec()
LINES = LineParser()


@target(lambda: [CODEC.encode([]), b"\x91\x92\xa4Bye\x00"])
def wire_messages(data: bytes) -> None:
    with contextlib.suppress(ProtocolError):
        CODEC.decode(data)


def _commands() -> list[bytes]:
    publish = Publish(1, (Draft({"a": 1, "b": "x", "c": None, "d": 1.5}, b"payload"),))
    return [COMMAND_FRAMES.encode(one) for one in (publish, Subscribe(2, "a > 1"))]


@target(_commands)
def control_commands(data: bytes) -> None:
    FrameReader(COMMAND_FRAMES).feed(data)


@target(_commands)
def control_replies(data: bytes) -> None:
    FrameReader(REPLY_FRAMES).feed(data)


def _selectors() -> list[bytes]:
    return [
        b"mag >= 4.5 AND place LIKE '%Ala!%ska%' ESCAPE '!'",
        b"a IN ('x', 'y') OR NOT (b BETWEEN 1 AND 2.5e3) OR c IS NOT NULL",
        b'"odd name" <> -1 AND a + b * 2 / c - 1 > 0 OR TRUE',
    ]


ATTRIBUTES = ({}, {"a": 1, "b": 0, "c": "x"}, {"a": "x", "mag": 5.5, "place": "Alaska", "b": True})


@target(_selectors)
def selectors(data: bytes) -> None:
    """A selector that compiles can be asked about any event, and written again."""
    try:
        found = compile_selector(data.decode("utf-8", "surrogateescape"))
    except SelectorError as error:
        error.caret()
        return
    for attributes in ATTRIBUTES:
        found.evaluate(attributes)
    str(found)


def _feeds() -> list[bytes]:
    return [
        b'{"id": "1", "type": "t", "a": 1, "b": {"c": [1, 2]}}\n{"a": null}\n',
        b'{"specversion": "1.0", "id": "1", "source": "/s", "type": "t", "data": {"a": 1}}\n',
        b'{"type": "FeatureCollection", "features": [{"type": "Feature", "properties": {"mag": 1},'
        b' "geometry": {"type": "Point", "coordinates": [1, 2, 3]}, "id": "x"}]}',
        b"a,b,c\n1,x,2.5\n2,,\n",
        b"\x82\xa1a\x01\xa1b\xc4\x02xx",
        b'{"$attributes": {"a": 1}, "$payload_base64": "AAE=", "$payload_type": "x/y"}\n',
    ]


@target(_feeds)
def feeds(data: bytes) -> None:
    """Each format in turn; whatever comes is an event or a refusal."""
    for format_ in FORMATS:
        for _ in read_feed(io.BytesIO(data), format_):
            pass


@target(_feeds)
def gateway_requests(data: bytes) -> None:
    """Requests of all kinds; whatever is taken leaves as a CloudEvent that would be taken again."""
    kinds = ("application/json", "application/x-ndjson", "application/cloudevents+json")
    for kind in (*kinds, "application/cloudevents-batch+json", "application/json-seq"):
        drafts: list[Draft] = []
        with contextlib.suppress(RequestRefused):
            drafts = drafts_of({"content-type": kind}, data, Drafting())
        for one in drafts:
            whole = (one.attributes, one.payload, one.payload_type)
            cloudevent_draft(cloudevent_object(*whole, "n.1.1", "canopy:/nodes/n", 0.0))
    try:
        named = {"ce-specversion": "1.0", "ce-id": data[:40].decode("latin-1"), "ce-type": "t"}
        drafts_of(named | {"ce-source": "/s", "content-type": "application/json"}, data, Drafting())
    except RequestRefused:
        pass


@target(lambda: [b"GET /events?where=a%3D1 HTTP/1.1\r\nHost: x\r\n\r\n", b"POST / HTTP/1.1\r\n"])
def gateway_http(data: bytes) -> None:
    """h11 as the gateway uses it."""
    wire = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_LIMIT)
    try:
        wire.receive_data(data)
        for _ in range(8):
            if wire.next_event() in (h11.NEED_DATA, h11.PAUSED):
                return
    except h11.RemoteProtocolError:
        pass


def _packets() -> list[bytes]:
    properties = [("unit", "C"), ("n", "5")]
    return [
        mqtt5.PublishPacket("s/1", b'{"t": 1}', user_properties=properties).write(),
        mqtt5.SubscribePacket(1, [mqtt5.TopicFilter("$where/a > 1")]).write(),
        mqtt5.ConnectPacket("me", password=b"x", will=mqtt5.Will("a", payload=b"b")).write(),
        mqtt5.PublishPacket("é", b"\xff", response_topic="ü", correlation_data=b"\0").write(),
        mqtt5.UnsubscribePacket(2, ["é/+"]).write(),
        mqtt5.DisconnectPacket(reason_str="é", user_properties=[("ü", "ö")]).write(),
    ]


@target(_packets)
def gateway_mqtt(data: bytes) -> None:
    """The codec as the gateway uses it, and what a message or a filter then becomes."""
    packet_size(data)
    try:
        packet = read_packet(bytearray(data))
    except MalformedPacketError as error:
        if str(error) == UNFORESEEN:  # the codec panicked, of which it writes pages
            raise AssertionError from error
        return
    if isinstance(packet, mqtt5.PublishPacket):
        with contextlib.suppress(BadEventError):
            found = message_of(packet.topic, packet.payload, packet).draft
            event = Event("n", 1, 1, 0.0, found.attributes, found.payload, found.payload_type)
            again = mqtt5.read(
                memoryview(publish_packet(event, packet.qos, packet.packet_id, None).write())
            )[0]
            assert isinstance(again, mqtt5.PublishPacket)
            assert again.response_topic == packet.response_topic
            assert again.correlation_data == packet.correlation_data
            sent = packet.user_properties
            assert [pair for pair in again.user_properties if pair in sent][: len(sent)] == sent
    elif isinstance(packet, mqtt5.SubscribePacket):
        for wanted in packet.topic_filters:
            with contextlib.suppress(TopicFilterError, SelectorError):
                compile_selector(parse_filter(wanted.pattern).selector)


@cache
def _scratch() -> Path:
    folder = tempfile.mkdtemp(prefix="canopy-fuzz-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


@target(lambda: [b"listen: 127.0.0.1:0\ntree:\n  hosts: 3\npeers: [127.0.0.1:4470]\n"])
def configuration(data: bytes) -> None:
    path = _scratch() / "config.yaml"
    path.write_bytes(data)
    with contextlib.suppress(ConfigError):
        load_config(str(path), {}, {})


@target(lambda: [b'{"version": 1, "tokens": [{"name": "a", "hash": "00", "scopes": ["publish"]}]}'])
def gateway_tokens(data: bytes) -> None:
    path = _scratch() / "tokens.json"
    path.touch(0o600)
    path.write_bytes(data)
    with contextlib.suppress(TokensError):
        TokenFile(path).find("x")


@target(lambda: [write_token(Token(*_token_fields())).encode()])
def tokens(data: bytes) -> None:
    with contextlib.suppress(TokenError):
        read_token(data.decode("latin-1"))


def _token_fields() -> list[object]:
    samples: dict[type, object] = {str: "x", bytes: b"x", float: 1.0, int: 1, tuple: ()}
    return [
        next((value for kind, value in samples.items() if kind.__name__ in str(hint)), "x")
        for hint in Token.__annotations__.values()
    ]


@target(lambda: [b"default: deny\ntenants:\n  acme:\n    publish: \"type LIKE 'a.%'\"\n"])
def policies(data: bytes) -> None:
    with contextlib.suppress(PolicyError):
        parse_policy(data.decode("utf-8", "replace"))


@target(lambda: [_seal_file()])
def seal_files(data: bytes) -> None:
    with contextlib.suppress(SealFileError):
        parse_seals(data)


def _seal_file() -> bytes:
    key = SealKey(b64encode(bytes(32)).decode(), 1.0)
    return msgspec.json.encode(SealFile(1, key.id, (key,)))


@cache
def _seals() -> Seals:
    path = _scratch() / "seals"
    path.touch(0o600)
    path.write_bytes(_seal_file())
    return Seals(path)


@target(lambda: [_seals().seal({"id": "1"}, b"payload", "text/plain")[0]])
def envelopes(data: bytes) -> None:
    """What is no envelope of these attributes comes as it is."""
    found = _seals().open({"id": "1"}, data, SEALED)
    assert found.seal == "opened" or found.payload == data


def _event(proof: bytes | None = None) -> Event:
    return Event("a" * 32, 1, 1, 1.0, {"a": 1}, b"payload", "text/plain", proof)


@cache
def _proofs() -> EventProofs:
    return EventProofs(SimulatedSigner("a" * 32, "fuzz"), True, lambda: 1.0)


@target(lambda: [one.proof or b"" for one in _proofs().sign([_event(), _event(), _event()])])
def event_proofs(data: bytes) -> None:
    """A proof that is none is a false one."""
    assert _proofs().fault(_event(data)) in ("", FALSE)


@cache
def _signed() -> tuple[list[bytes], list[bytes]]:
    """Certificates (DER), and documents that an issuer has signed."""
    root, issuer = (Ed25519PrivateKey.from_private_bytes(bytes(31) + n) for n in (b"r", b"i"))
    top = authority_certificate("root", root.public_key(), root, None, 1e9)
    second = authority_certificate("issuer", issuer.public_key(), root, top, 1e9)
    holder = Holder("o", Role.ADMIN, "t", 1)
    node = node_certificate(holder, issuer.public_key(), issuer, second, 1e9)
    revocations = sign_revocations(Revocations("o", 1, ("a" * 32,)), issuer, (second,))
    policy = sign_policy(Policy(1, {"t": TenantPolicy()}), "o", issuer, (node, second), 1e9)
    der = [each.public_bytes(Encoding.DER) for each in (node, second)]
    return der, [revocations, policy]


@target(lambda: _signed()[0])
def certificates(data: bytes) -> None:
    """What is asked of a certificate before anybody's signature under it was looked at."""
    with contextlib.suppress(CertificateError):
        read_der(data)
    with contextlib.suppress(CertificateError):
        found = load_der(data)
        is_authority(found)
        is_signed_by(found, [found])


@target(lambda: _signed()[1])
def signed_documents(data: bytes) -> None:
    """Lists of revocations and policies, as members pass them on."""
    roots = [load_der(_signed()[0][1])]
    with contextlib.suppress(CertificateError):
        read_revocations(data, "o", roots)
    with contextlib.suppress(PolicyError):
        read_policy(data, "o", roots)


@target(lambda: [msgspec.msgpack.encode(word) for word in _words()])
def enrolment(data: bytes) -> None:
    """What anybody may ask an issuer, and what the issuer's side answers."""
    for frames in (REQUESTS, ANSWERS):
        with contextlib.suppress(*MALFORMED):
            frames.decode(data)


def _words() -> tuple[Word, ...]:
    return (
        RenewCertificate(b"pem", 1, bytes(32), bytes(64)),
        Enrol("a", b"s", bytes(32), bytes(64)),
        Issued(b"pem", b"pem", b""),
        Denied("no"),
    )


def _lines() -> list[bytes]:
    record = {"v": 1, "t": 1.5, "kind": "publish", "node": "a", "event": "a.1.1"}
    return [json.dumps(record).encode(), b'{"kind": "suback", "subscription": "a.1.1", "t": 1}']


@target(_lines)
def trace_lines(data: bytes) -> None:
    record, problem = LINES.parse(data)
    assert (record is None) == bool(problem)


@target(
    lambda: [b'{"until": 1, "window": 60, "nodes": {}, "format": "canopy-health", "version": 1}']
)
def health_files(data: bytes) -> None:
    with contextlib.suppress(HealthFileError):
        decode_health(data)


@target(lambda: [pack_block(0, [b"a", b"bc"]) + pack_block(1, [b"d"])])
def state_files(data: bytes) -> None:
    found = recover(data)
    assert found.end <= len(data)


def _segment() -> list[bytes]:
    found, after = b"", genesis("s.0")
    for number in range(3):
        chunk = pack(EVENTS, 1, after, number, 1, 0, _chunk_rows())
        found, after = found + chunk.data, chunk.id
    return [found]


def _chunk_rows() -> bytes:
    row = Row({"a": 1, "b": "x"})
    return encode_batches([EventBatch(BatchHead("p", 1, 1, 1), (row,))])


@target(_segment)
def segments(data: bytes) -> None:
    """What is found is in the data, in order, without overlap."""
    found = scan(data, 1)
    at = 0
    for placed in found.chunks:
        assert placed.at >= at
        at = placed.at + len(placed.chunk.data)
        assert data[placed.at : at] == placed.chunk.data
    assert at <= found.end <= len(data)


@target(lambda: [_chunk_rows()])
def chunks(data: bytes) -> None:
    """The rows of a chunk whose CRC is right: whoever wrote it was wrong."""
    if len(data) < 100_000:
        chunk = pack(EVENTS, 1, ChunkId(0, bytes(32)), 0, 1, 0, data)
        with contextlib.suppress(MalformedChunkError):
            rows_of(chunk)


@target(lambda: [encode_zones(zone_map([Row({"a": 1, "b": "x"})]))])
def zone_maps(data: bytes) -> None:
    decode_zones(data)


@target(lambda: [b'{"stream": "s", "shard": 0, "first": 1, "count": 1}'])
def receipts(data: bytes) -> None:
    with contextlib.suppress(MalformedReceiptError):
        parse_receipt(data)
