"""Trace records as spans of OpenTelemetry."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from canopy.cli.main import main
from canopy.traces.otlp import TraceContext, read_traceparent
from canopy.traces.writer import TraceFile, TraceWriter

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
GIVEN = f"00-{TRACE}-{PARENT}-01"
START = 1_790_000_000.0


@pytest.mark.parametrize(
    ("text", "is_valid"),
    [
        (GIVEN, True),
        (GIVEN.replace("00-", "01-", 1), True),
        (GIVEN.replace("00-", "cc-", 1) + "-what.comes.later", True),
        (GIVEN + "-more", False),
        (GIVEN.replace("00-", "ff-", 1), False),
        (GIVEN.upper(), False),
        (f"00-{'0' * 32}-{PARENT}-01", False),
        (f"00-{TRACE}-{'0' * 16}-01", False),
        (GIVEN[:-1], False),
        (7, False),
        (None, False),
    ],
)
def test_a_traceparent_is_read_as_w3c_has_it(text: object, is_valid: bool) -> None:
    assert (read_traceparent(text) is not None) is is_valid
    assert read_traceparent(GIVEN) == TraceContext(TRACE, PARENT, 1)


class Node:
    """Writes the records of one node; a step of time is 10 ms."""

    now = START

    def __init__(self, folder: Path, name: str) -> None:
        def opened(path: str) -> TraceFile:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            return open(path, "ab", buffering=0)

        self.writer = TraceWriter(
            opened,
            name,
            lambda: Node.now,
            hybrid=lambda: int(Node.now * 1e9),
            overlay="test",
            root=str(folder),
        )
        self.write("start", address="a:1", routing="pivot", name=f"the {name}")

    def write(self, kind: str, **fields: Any) -> None:
        Node.now += 0.01
        self.writer.write(kind, fields)


def recorded(folder: Path, **attributes: Any) -> None:
    """One event from a publisher by a host to a subscriber, and a delivery that was given up."""
    Node.now = START
    publisher, host, there = (Node(folder, name) for name in ("aa" * 8, "bb" * 8, "cc" * 8))
    event = {"event": "aa.1.1"}
    text = json.dumps({"type": "quake", "mag": 5, **attributes})
    publisher.write("publish", **event, id="u1", attributes=text, size=3)
    publisher.write("visit", **event, attribute="mag", hop=1, peer="bb" * 8)
    host.write("match", **event, attribute="mag", lo="0", hi="9", version=1, recipients=2)
    there.write("arrive", **event, peer="bb" * 8, attribute="mag", hop=2)
    there.write(
        "deliver", **event, id="u1", subscription="s1", latency_ms=30.5, attribute="mag", hops=2,
        lo="0", hi="9",
    )  # fmt: skip
    host.write("drop", **event, peer="dd" * 8, reason="out of reach", size=1)
    for node in (publisher, host, there):
        node.writer.close()


def spans_of(request: dict[str, Any]) -> dict[str, dict[str, Any]]:
    found = {}
    for resource in request["resourceSpans"]:
        about = {a["key"]: a["value"]["stringValue"] for a in resource["resource"]["attributes"]}
        for scope in resource["scopeSpans"]:
            for span in scope["spans"]:
                found[span["name"]] = {**span, "node": about["service.instance.id"]}
                assert about["canopy.node.name"] == f"the {about['service.instance.id']}"
    return found


def test_an_event_becomes_spans_below_its_publishers(tmp_path: Path) -> None:
    recorded(tmp_path / "traces", traceparent=GIVEN)
    out = tmp_path / "spans.jsonl"
    assert main(["trace", "export", str(tmp_path / "traces"), "--otlp", str(out)]) == 0
    [line] = out.read_text(encoding="utf-8").splitlines()
    spans = spans_of(json.loads(line))
    publish, match = spans["publish quake"], spans["match mag"]
    deliver, drop = spans["deliver quake"], spans["drop"]
    assert {span["traceId"] for span in spans.values()} == {TRACE}
    assert publish["parentSpanId"] == PARENT
    assert match["parentSpanId"] == publish["spanId"]
    assert deliver["parentSpanId"] == match["spanId"]
    assert len({span["spanId"] for span in spans.values()}) == 4
    assert [publish["kind"], match["kind"], deliver["kind"]] == [4, 1, 5]
    assert [publish["node"][0], match["node"][0], deliver["node"][0]] == ["a", "b", "c"]
    assert drop["status"] == {"code": 2, "message": "out of reach"}
    took = int(match["endTimeUnixNano"]) - int(match["startTimeUnixNano"])
    assert took == pytest.approx(10_000_000, abs=1_000), "from the visit to the match"
    values = {each["key"]: each["value"] for each in deliver["attributes"]}
    assert values["canopy.hops"] == {"intValue": "2"}
    assert values["canopy.latency_ms"] == {"doubleValue": 30.5}
    assert values["messaging.message.id"] == {"stringValue": "u1"}
    before = out.read_bytes()
    assert main(["trace", "export", str(tmp_path / "traces"), "--otlp", str(out)]) == 0
    assert out.read_bytes() == before, "the same spans again"


@pytest.mark.parametrize(
    ("attributes", "said"),
    [
        ({}, "no event has the attribute"),
        ({"traceparent": "nonsense"}, "is not valid"),
        ({"traceparent": GIVEN[:-2] + "00"}, "their tracer does not record them"),
    ],
)
def test_other_events_are_exported_only_on_demand(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], attributes: dict[str, str], said: str
) -> None:
    recorded(tmp_path / "traces", **attributes)
    command = ["trace", "export", str(tmp_path / "traces"), "--otlp", str(tmp_path / "out")]
    assert main(command) == 1
    assert said in capsys.readouterr().err
    assert (tmp_path / "out").read_bytes() == b""
    assert main([*command, "--all", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["spans"] == 4


class Collector(BaseHTTPRequestHandler):
    """Notes what it gets, and answers as a collector does, or with `code`."""

    got: list[tuple[str, dict[str, Any]]]
    code: int

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.got.append((self.headers["content-type"], body))
        self.send_response(self.code)
        self.end_headers()
        self.wfile.write(b'{"partialSuccess":{}}')

    def log_message(self, *_: Any) -> None: ...


@pytest.mark.parametrize(("code", "status"), [(200, 0), (404, 1)])
def test_spans_go_to_a_collector(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], code: int, status: int
) -> None:
    recorded(tmp_path, traceparent=GIVEN)
    got: list[tuple[str, dict[str, Any]]] = []
    handler = type("Handler", (Collector,), {"got": got, "code": code})
    with HTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{server.server_port}/v1/traces"
        assert main(["trace", "export", str(tmp_path), "--otlp", url]) == status
        server.shutdown()
        thread.join()
    [(kind, body)] = got
    assert kind == "application/json"
    assert len(spans_of(body)) == 4
    error = capsys.readouterr().err
    assert ("/v1/traces?" in error) is (code == 404)


def test_a_collector_that_is_not_there_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded(tmp_path, traceparent=GIVEN)
    url = "http://127.0.0.1:9/v1/traces"
    assert main(["trace", "export", str(tmp_path), "--otlp", url]) == 1
    assert url in capsys.readouterr().err
