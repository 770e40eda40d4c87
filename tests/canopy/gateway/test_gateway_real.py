"""The gateway as a process beside a real node: HTTP, WebSocket and MQTT clients of others."""

from __future__ import annotations

import http.client
import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mqtt5
import pytest
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, RejectConnection, Request, TextMessage

from canopy.wire.token_file import TokenFile
from harness.real_overlay import PATIENCE, ROOT, Overlay, wait_ready
from overlay.client import Draft, Publish, Published

pytestmark = pytest.mark.process

ADDRESS = tuple[str, int]


class Gateway:
    """A node, and a gateway with tokens: `all` may do anything, `eu` follows its region."""

    def __init__(self, folder: Path) -> None:
        self.overlay = Overlay(folder)
        wait_ready(self.overlay.start())
        self.tokens = TokenFile(folder / "tokens.json")
        self.all = self.tokens.add("all", ("publish", "subscribe", "observe"))
        self.eu = self.tokens.add("eu", ("subscribe",), subscribe="region = 'eu'")
        command = [sys.executable, "-m", "canopy", "gateway", "--connect", str(folder / "0")]
        command += ["--http", "127.0.0.1:0", "--mqtt", "127.0.0.1:0", "--json"]
        command += ["--tokens", str(self.tokens.path)]
        self.process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        urls = json.loads(self.process.stdout.readline())
        self.http, self.mqtt = (address_of(urls[name]) for name in ("http", "mqtt"))

    def stop(self) -> None:
        self.process.terminate()
        assert self.process.wait(PATIENCE) == 0
        assert self.process.stdout is not None
        self.process.stdout.close()
        self.overlay.stop()

    def request(
        self, method: str, path: str, body: Any = None, **headers: str
    ) -> tuple[int, dict[str, Any]]:
        connection = http.client.HTTPConnection(*self.http, timeout=PATIENCE)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        named.setdefault("Authorization", f"Bearer {self.all}")
        content = json.dumps(body).encode() if body is not None else None
        connection.request(method, path, content, named)
        response = connection.getresponse()
        found = (response.status, json.loads(response.read()))
        connection.close()
        return found

    def publish(self, body: Any, **headers: str) -> tuple[int, dict[str, Any]]:
        return self.request(
            "POST", "/events", body, **{"Content_Type": "application/json", **headers}
        )

    def follow(self, path: str, token: str = "") -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection(*self.http, timeout=PATIENCE)
        named = {"Authorization": f"Bearer {token or self.all}"}
        connection.request("GET", path, headers=named)
        response = connection.getresponse()
        if response.status == 200:
            assert response.readline() == b"retry: 2000\n"
            assert response.readline() == b": subscribed\n"
        return response


def address_of(url: str) -> ADDRESS:
    host, _, port = url.split("/")[2].rpartition(":")
    return host, int(port)


def next_event(response: http.client.HTTPResponse) -> dict[str, str]:
    """The fields of the next event of a server."""
    found: dict[str, str] = {}
    while (line := response.readline().decode().rstrip("\n")) or not found:
        name, _, value = line.partition(": ")
        if name:
            found[name] = value
    return found


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    made = Gateway(tmp_path_factory.mktemp("gateway"))
    yield made
    made.stop()


def test_events_go_in_and_out_over_http(gateway: Gateway) -> None:
    follower = gateway.follow("/events?where=mag%20%3E%3D%205")
    status, told = gateway.publish([{"mag": 4}, {"mag": 5, "id": "b"}, {"mag": 6, "id": "c"}])
    assert (status, told["published"]) == (200, 3)
    events = [json.loads(next_event(follower)["data"]) for _ in range(2)]
    assert [event["id"] for event in events] == ["b", "c"]
    assert events[0]["event"] == told["events"][1]
    follower.close()


def test_what_the_node_knows_is_asked_over_http(gateway: Gateway) -> None:
    node = gateway.request("GET", "/api/status")[1]["node"]
    (cluster,) = gateway.request("GET", "/api/ring")[1]["clusters"]
    assert cluster["primary"] == node
    told = gateway.publish({"mag": 5, "id": "known"})[1]
    status, why = gateway.request("GET", "/api/why?event=known")
    assert (status, why["event"], why["attributes"]["mag"]) == (200, told["events"][0], 5)
    kind = {"Content_Type": "application/json"}
    (who,) = gateway.request("POST", "/api/dry-run", {"mag": 5}, **kind)[1]["events"]
    assert who == {"refused": "", "nodes": 0, "listed": [], "unanswered": []}
    assert "^" in gateway.request("GET", "/api/check?where=mag%20%3E")[1]["error"]
    for path, refused, word in (
        ("/api/where", 400, "attribute: missing"),
        ("/api/status?x=1", 400, "x: unknown; known are none"),
        ("/api/nothing", 404, "/api/nothing"),
        ("/api/row?stream=s&offset=-1", 400, "whole number"),
        ("/api/row?stream=s&offset=1", 404, "s"),
    ):
        status, answer = gateway.request("GET", path)
        assert (status, word in answer["error"]) == (refused, True), answer


def test_what_the_node_knows_takes_a_scope_that_nothing_confines(gateway: Gateway) -> None:
    confined = gateway.tokens.add("odd", ("observe", "subscribe"), subscribe="mag > 3")
    for token, word in ((gateway.eu, "does not allow to observe"), (confined, "confined")):
        for method, path in (("GET", "/api/subscriptions"), ("POST", "/api/dry-run")):
            headers = {"Authorization": f"Bearer {token}"}
            status, answer = gateway.request(method, path, {}, **headers)
            assert (status, word in answer["error"]) == (403, True)
    assert gateway.request("GET", "/api/status", Authorization="Bearer no")[0] == 401


def test_answers_are_what_their_description_says(gateway: Gateway) -> None:
    """Each question's answer, against the schema that /openapi.json has for it."""
    about = gateway.request("GET", "/openapi.json")[1]
    parts = about["components"]["schemas"]

    def fits(value: Any, schema: dict[str, Any]) -> bool:
        schema = parts[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
        if "anyOf" in schema:
            return any(fits(value, each) for each in schema["anyOf"])
        if isinstance(value, dict) and "properties" in schema:
            known = schema["properties"]
            return value.keys() == known.keys() and all(
                fits(item, known[name]) for name, item in value.items()
            )
        if isinstance(value, list) and isinstance(schema.get("items"), dict):
            return schema["type"] == "array" and all(fits(each, schema["items"]) for each in value)
        kinds = {"array": list, "object": dict, "string": str, "boolean": bool, "null": type(None)}
        kinds |= {"number": (int, float), "integer": int}
        return "type" not in schema or isinstance(value, kinds[schema["type"]])

    gateway.publish({"mag": 5, "id": "shaped"})
    query = {"where": "?attribute=mag", "why": "?event=shaped", "row": "", "groups": ""}
    for path, item in about["paths"].items():
        name = path.removeprefix("/api/")
        if name in ("row", "groups", "dry-run", "/events") or "get" not in item:
            continue  # of streams, or no question
        status, answer = gateway.request("GET", path + query.get(name, ""))
        content = item["get"]["responses"]["200"]["content"]["application/json"]
        assert status == 200
        assert fits(answer, content["schema"]), (path, answer)
    assert gateway.request("GET", "/asyncapi.json")[1]["asyncapi"] == "3.0.0"


def test_a_token_confines_what_is_followed_and_published(gateway: Gateway) -> None:
    follower = gateway.follow("/events?where=TRUE", gateway.eu)
    for number, region in enumerate(["us", "eu", None]):
        assert gateway.publish({"region": region, "id": f"r{number}"})[0] == 200
    gateway.publish({"region": "eu", "id": "r3"})
    assert [json.loads(next_event(follower)["data"])["id"] for _ in range(2)] == ["r1", "r3"]
    follower.close()
    breaking = gateway.follow("/events?where=a%3D1)%20OR%20(TRUE", gateway.eu)
    assert breaking.status == 400
    assert gateway.publish({"a": 1}, Authorization=f"Bearer {gateway.eu}")[0] == 403
    assert gateway.publish({"a": 1}, Authorization="Bearer nobody")[0] == 401
    assert gateway.publish({"a": 1}, Authorization="")[0] == 401


def test_bad_requests_hear_what_is_wrong(gateway: Gateway) -> None:
    cases = [
        ("GET", "/events?where=mag%20%3E", 400, "selector"),
        ("GET", "/events?wher=TRUE", 400, "wher"),
        ("GET", "/events?stream=nothing", 404, "nothing"),
        ("GET", "/events?from=first", 400, "stream"),
        ("GET", "/nothing", 404, "/events"),
        ("DELETE", "/events", 405, "DELETE"),
    ]
    for method, path, status, word in cases:
        found, told = gateway.request(method, path)
        assert (found, word in told["error"]) == (status, True), (path, told)


def test_what_is_no_http_ends_its_connection_only(gateway: Gateway) -> None:
    for content in (b"\x16\x03\x01garbage\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n" + b"x" * 20_000):
        with socket.create_connection(gateway.http, PATIENCE) as raw:
            raw.sendall(content)
            assert b"HTTP/1.1 4" in raw.recv(4096)
    with socket.create_connection(gateway.http, PATIENCE) as raw:
        length = 1 << 40
        raw.sendall(
            f"POST /events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {gateway.all}\r\n"
            f"Content-Length: {length}\r\n\r\n".encode()
        )
        assert b" 413 " in raw.recv(4096)
    assert gateway.publish({"a": 1})[0] == 200


class WebSocket:
    """A client of a WebSocket, with the field's own protocol library."""

    def __init__(self, gateway: Gateway, target: str, *protocols: str) -> None:
        self.socket = socket.create_connection(gateway.http, PATIENCE)
        self.wire = WSConnection(ConnectionType.CLIENT)
        asked = Request(host="localhost", target=target, subprotocols=list(protocols))
        self.socket.sendall(self.wire.send(asked))
        self.events: list[Any] = []
        self.answer = self.next()

    def next(self) -> Any:
        while not self.events:
            data = self.socket.recv(65536)
            self.wire.receive_data(data or None)
            self.events += list(self.wire.events())
        return self.events.pop(0)

    def say(self, value: Any) -> None:
        self.socket.sendall(self.wire.send(TextMessage(json.dumps(value))))

    def hear(self) -> Any:
        found = self.next()
        assert isinstance(found, TextMessage)
        return json.loads(found.data)


def test_a_websocket_follows_and_publishes(gateway: Gateway) -> None:
    bearer = f"bearer.{gateway.all}"
    web = WebSocket(
        gateway, "/events?where=n%20IS%20NOT%20NULL&format=cloudevents", "canopy", bearer
    )
    assert isinstance(web.answer, AcceptConnection)
    assert web.answer.subprotocol == "canopy"  # the token is not echoed
    web.say({"n": 1, "id": "w1"})
    heard = [web.hear(), web.hear()]
    assert {"published", "event"} == {name for one in heard for name in one} & {
        "published",
        "event",
    }
    (event,) = [one["event"] for one in heard if "event" in one]
    assert (event["specversion"], event["id"], event["data"]) == ("1.0", "w1", {"n": 1})
    web.say([1])
    assert "error" in web.hear()
    web.socket.close()
    refused = WebSocket(gateway, "/events?where=TRUE", "canopy", "bearer.nobody")
    assert isinstance(refused.answer, RejectConnection)
    assert refused.answer.status_code == 401
    refused.socket.close()


class Mqtt:
    """A client of MQTT 5, which is the packets it sends and gets."""

    def __init__(self, gateway: Gateway, password: str, will: mqtt5.Will | None = None) -> None:
        self.socket = socket.create_connection(gateway.mqtt, PATIENCE)
        self.buffer = b""
        self.send(mqtt5.ConnectPacket("", password=password.encode(), will=will))
        self.welcome = self.next()

    def send(self, packet: Any) -> None:
        self.socket.sendall(packet.write())

    def next(self) -> Any:
        while True:
            try:
                packet, size = mqtt5.read(memoryview(self.buffer))
            except IndexError:
                data = self.socket.recv(65536)
                if not data:
                    return None
                self.buffer += data
                continue
            self.buffer = self.buffer[size:]
            return packet

    def subscribe(self, *patterns: str) -> list[int]:
        filters = [mqtt5.TopicFilter(one, max_qos=mqtt5.QoS.AT_LEAST_ONCE) for one in patterns]
        self.send(mqtt5.SubscribePacket(1, filters))
        return [int(code) for code in self.next().reason_codes]


def test_mqtt_clients_subscribe_by_content_and_by_topic(gateway: Gateway) -> None:
    reader = Mqtt(gateway, gateway.all)
    assert reader.welcome.reason_code == mqtt5.ConnAckReasonCode.SUCCESS
    warm = "$where/temp > 20 AND unit = 'C'"
    assert reader.subscribe(warm, "$where/temp >", "$SYS/x") == [1, 143, 143]
    unit = [("unit", "C")]
    writer = Mqtt(
        gateway, gateway.all, mqtt5.Will("s/gone", payload=b'{"temp": 99}', user_properties=unit)
    )
    for number, temp in enumerate([19, 21, 22]):
        writer.send(
            mqtt5.PublishPacket(
                f"s/{number}",
                json.dumps({"temp": temp}).encode(),
                qos=mqtt5.QoS.AT_LEAST_ONCE,
                packet_id=number + 1,
                user_properties=unit,
            )
        )
        assert writer.next().reason_code == mqtt5.PubAckReasonCode.SUCCESS
    got = [reader.next(), reader.next()]
    assert [one.topic for one in got] == ["s/1", "s/2"]
    assert got[0].payload == b'{"temp": 21}'
    assert ("temp", "21") in got[0].user_properties
    for one in got:
        reader.send(mqtt5.PubAckPacket(one.packet_id))
    writer.socket.close()  # without a word: its will is published
    assert reader.next().topic == "s/gone"
    reader.send(mqtt5.UnsubscribePacket(2, [warm, "never"]))
    assert [int(code) for code in reader.next().reason_codes] == [0, 17]
    reader.socket.close()


def test_mqtt_messages_that_come_together_are_answered_each(gateway: Gateway) -> None:
    """They are one request to the node; what is wrong with one does not touch the others."""
    reader, writer = Mqtt(gateway, gateway.all), Mqtt(gateway, gateway.all)
    assert reader.subscribe("$where/n >= 0") == [1]
    words = b""
    for number in range(1, 8):
        packet = {"qos": mqtt5.QoS.AT_LEAST_ONCE, "packet_id": number}
        if number == 3:  # said to be JSON, and is none
            packet["content_type"] = "application/json"
        if number == 5:
            packet = {}  # quality of service 0: no answer
        if number == 7:
            packet["retain"] = True
        payload = json.dumps({"n": number}).encode() + b"}" * (number == 3)
        words += mqtt5.PublishPacket("t", payload, **packet).write()
    writer.socket.sendall(words)
    answers = [writer.next() for _ in range(5)]
    assert [one.packet_id for one in answers] == [1, 2, 3, 4, 6]
    good = mqtt5.PubAckReasonCode.SUCCESS
    assert [one.packet_id for one in answers if one.reason_code == good] == [1, 2, 4, 6]
    assert writer.next().reason_code == mqtt5.DisconnectReasonCode.RETAIN_NOT_SUPPORTED
    assert [json.loads(reader.next().payload)["n"] for _ in range(5)] == [1, 2, 4, 5, 6]
    reader.socket.close()
    writer.socket.close()


def test_mqtt_without_a_good_token_does_nothing(gateway: Gateway) -> None:
    stranger = Mqtt(gateway, "nobody")
    assert stranger.welcome.reason_code == mqtt5.ConnAckReasonCode.NOT_AUTHORIZED
    assert stranger.next() is None
    stranger.socket.close()
    confined = Mqtt(gateway, gateway.eu)
    assert confined.subscribe("#") == [1]
    confined.send(mqtt5.PublishPacket("t", b"x", qos=mqtt5.QoS.AT_LEAST_ONCE, packet_id=1))
    assert confined.next().reason_code == mqtt5.PubAckReasonCode.NOT_AUTHORIZED
    all_ = gateway.overlay.clients[0]
    drafts = (Draft({"topic": "a", "region": "us"}), Draft({"topic": "b", "region": "eu"}))
    all_.ask(Publish(0, drafts), Published)
    assert confined.next().topic == "b"
    confined.send(mqtt5.PublishPacket("t", b"x", retain=True))
    assert confined.next().reason_code == mqtt5.DisconnectReasonCode.RETAIN_NOT_SUPPORTED
    confined.socket.close()


@pytest.mark.parametrize("content", [b"\x00" * 8, b"\x10\xff\xff\xff\x7f", b"\xf0\x00"])
def test_what_is_no_mqtt_ends_its_connection_only(gateway: Gateway, content: bytes) -> None:
    with socket.create_connection(gateway.mqtt, PATIENCE) as raw:
        raw.sendall(content)
        raw.settimeout(PATIENCE)
        answer = raw.recv(4096)
        assert answer[:1] in (b"", b"\xe0")
    other = Mqtt(gateway, gateway.all)
    assert other.subscribe("ok") == [1]
    other.socket.close()
