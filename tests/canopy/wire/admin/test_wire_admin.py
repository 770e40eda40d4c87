"""/metrics, /livez and /readyz: what they say, and what a caller may cost."""

from __future__ import annotations

import io
import json
import re
import shutil
import subprocess
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import pytest
import trio
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as classic

from canopy.wire.admin import http
from canopy.wire.admin.http import AdminServer, HttpAnswer, Request, answer_checks
from canopy.wire.admin.metrics import NOT_COUNTS, MetricFacts, MetricsPage, help_texts, parse
from canopy.wire.admin.turn_times import BOUNDS, TurnTimes
from canopy.wire.log import Log
from overlay.client import Status

ROOT = Path(__file__).parents[4]
DASHBOARD = ROOT / "deploy/grafana/canopy.json"
ALERTS = ROOT / "deploy/prometheus/canopy-alerts.yml"


def status(**counters: int) -> Status:
    return Status(
        *(0, "ab" * 8, 'a"b\n:1', True, False, 1, "primary", "", "", 3, 2, 1, 0, 4, "pivot", {}),
        counters, uptime=12.5, way="lease",
    )  # fmt: skip


def exposition(accept: str = "", **counters: int) -> tuple[str, str]:
    """Text and type of /metrics."""
    turns = TurnTimes()
    for seconds in (0.00005, 0.0001, 0.003, 60.0):
        turns.observe(seconds)
    facts = MetricFacts(status(**counters), turns, "1.2", 2e9, 12_345)
    answer = trio.run(MetricsPage(lambda: facts).answer, Request("/metrics", "", accept))
    return answer.body.decode(), answer.kind


def values(text: str) -> dict[str, float]:
    return {
        name + "".join(f"{{{k}={v}}}" for k, v in labels.items()): value
        for family in classic(text)
        for name, labels, value, *_ in family.samples
    }


def test_metrics_have_every_counter_with_its_help_and_what_the_node_is_now() -> None:
    text, kind = exposition(published=7, longest_turn=250)
    assert kind.startswith("text/plain; version=")
    found = values(text)
    assert found["canopy_published_total"] == 7.0
    assert found["canopy_delivered_total"] == 0.0, "also what never happened: rates need a first 0"
    assert found["canopy_longest_turn_seconds"] == 0.25
    assert found["canopy_ready"] == found["canopy_lease"] == 1.0
    assert found["canopy_role{role=primary}"] == 1.0
    assert found["canopy_certificate_expiry_timestamp_seconds"] == 2e9
    assert found["canopy_turn_seconds_bucket{le=0.0001}"] == 2.0
    assert found["canopy_turn_seconds_bucket{le=+Inf}"] == found["canopy_turn_seconds_count"] == 4.0
    for name in help_texts():
        assert f"canopy_{name}_total" in found
    helps = dict(re.findall(r"^# HELP (\S+) (.*)$", text, re.MULTILINE))
    assert helps["canopy_published_total"].startswith("Events that this node's programs published")
    assert all(helps.values())


def test_the_open_metrics_format_is_one_valid_text_though_it_is_made_in_pieces() -> None:
    text, kind = exposition("application/openmetrics-text; version=1.0.0")
    assert kind.startswith("application/openmetrics-text")
    assert text.count("# EOF") == 1
    assert sum(1 for _ in openmetrics(text)) > 100


@pytest.mark.skipif(not shutil.which("promtool"), reason="Prometheus is not installed")
def test_prometheus_itself_finds_nothing_to_say_of_names_and_helps() -> None:
    text, _ = exposition()
    checked = subprocess.run(
        ["promtool", "check", "metrics"], input=text, capture_output=True, text=True, timeout=60
    )
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")


def test_dashboard_and_alerts_use_metrics_that_exist() -> None:
    found = {name.partition("{")[0] for name in values(exposition()[0])}
    board = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    asked = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    text = "\n".join([*asked, ALERTS.read_text(encoding="utf-8")])
    named = set(re.findall(r"\b(?:canopy|process)_\w+", text))
    assert len(named) > 20
    assert named - found == set()
    for part in ("stream", "shard", "group", "halves", "capture", "appends", "readings"):
        assert any(part in name for name in named), f"no alert and no panel has {part}"


def test_help_texts_are_plain_and_each_name_gets_its_part() -> None:
    rows = ("`a`, `b` | first `x`; [second](y.md)", "`c`, `d` | **both**", "`longest_turn` | t")
    page = "".join(f"| {row} |\n" for row in rows)
    assert parse(page) == {"a": "First x", "b": "Second", "c": "Both", "d": "Both"}
    assert len(help_texts()) > 150
    assert not set(NOT_COUNTS) & set(help_texts())


def test_turns_are_counted_by_their_length() -> None:
    turns = TurnTimes()
    for bound in BOUNDS:
        turns.observe(bound)
    assert [count for _, count in turns.buckets()] == [*range(1, len(BOUNDS) + 1), len(BOUNDS)]
    assert turns.total == pytest.approx(sum(BOUNDS))


CHECKS = {"good": lambda: "", "bad": lambda: "it is broken"}


@pytest.mark.parametrize(
    ("path", "query", "code", "lines"),
    [
        ("/readyz", "", 503, ["[+]good ok", "[-]bad failed: it is broken", "readyz check failed"]),
        ("/readyz", "exclude=bad", 200, ["ok"]),
        ("/readyz", "exclude=bad&verbose", 200,
         ["[+]good ok", "[+]bad excluded: ok", "readyz check passed"]),
        ("/readyz/good", "", 200, ["ok"]),
        ("/readyz/bad", "", 503, ["[-]bad failed: it is broken", "readyz check failed"]),
        ("/readyz/other", "", 404, ["no check 'other'; there are: good, bad"]),
    ],
)  # fmt: skip
def test_checks_answer_as_those_of_kubernetes(
    path: str, query: str, code: int, lines: list[str]
) -> None:
    answer = answer_checks("readyz", CHECKS, Request(path, query, ""))
    assert (answer.status, answer.body.decode().splitlines()) == (code, lines)


async def echo(request: Request) -> HttpAnswer:
    return HttpAnswer(200, f"{request.path} {request.query}\n".encode())


def serve(talk: Callable[[Callable[[], Awaitable[trio.SocketStream]]], Awaitable[None]]) -> None:
    """Run `talk` with a function that connects to a server whose only route is /echo."""

    async def main() -> None:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        port = listeners[0].socket.getsockname()[1]
        server = AdminServer({"echo": echo}, Log("error", io.StringIO()))
        async with AsyncExitStack() as stack, trio.open_nursery() as nursery:

            async def connect() -> trio.SocketStream:
                stream = await trio.open_tcp_stream("127.0.0.1", port)
                return await stack.enter_async_context(stream)

            await nursery.start(server.serve, listeners)
            with trio.fail_after(20):
                await talk(connect)
            nursery.cancel_scope.cancel()

    trio.run(main)


async def asked(stream: trio.SocketStream, request: str) -> str:
    """The status line of the answer, and its body."""
    await stream.send_all(request.encode())
    data = b""
    while True:
        head, blank, body = data.partition(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head)
        is_head = request.startswith("HEAD")
        if blank and length and (is_head or len(body) >= int(length[1])):
            return head.split(b"\r\n")[0].decode() + " | " + body.decode()
        try:
            more = await stream.receive_some()
        except trio.BrokenResourceError:
            more = b""
        if not more:
            return "closed"
        data += more


def test_one_connection_asks_again_and_again_and_wrong_questions_are_answered() -> None:
    async def talk(connect: Callable[[], Awaitable[trio.SocketStream]]) -> None:
        stream = await connect()
        get = "GET /echo/x?y=1 HTTP/1.1\r\nHost: a\r\n\r\n"
        assert await asked(stream, get) == "HTTP/1.1 200 OK | /echo/x y=1\n"
        assert await asked(stream, get.replace("GET", "HEAD")) == "HTTP/1.1 200 OK | "
        assert (await asked(stream, get.replace("echo", "no"))).startswith("HTTP/1.1 404 Not Found")
        wrong = await asked(stream, get.replace("GET", "PUT"))
        assert wrong.startswith("HTTP/1.1 405 Method Not Allowed")
        for request in ("nonsense\r\n\r\n", get.replace("\r\n\r\n", "\r\na: " + "b" * 10_000)):
            assert (await asked(await connect(), request)).split()[1] in ("400", "431")
        body = get.replace("Host: a", "Host: a\r\nContent-Length: 5")
        stream = await connect()
        assert (await asked(stream, body + "12")).startswith("HTTP/1.1 200")
        with suppress(trio.BrokenResourceError):
            assert await asked(stream, get) == "closed", "nothing is read behind a body"

    serve(talk)


def test_callers_are_bounded_and_who_says_nothing_is_disconnected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http, "CALLERS", 3)

    async def talk(connect: Callable[[], Awaitable[trio.SocketStream]]) -> None:
        get = "GET /echo HTTP/1.1\r\nHost: a\r\n\r\n"
        silent = [await connect() for _ in range(3)]
        await trio.sleep(0.05)
        probe = await connect()
        assert "200" in await asked(probe, get), "nobody is kept out by who says nothing"
        assert await silent[0].receive_some() == b""
        monkeypatch.setattr(http, "IDLE", 0.1)
        for stream in silent[1:]:
            assert "200" in await asked(stream, get)
            assert await stream.receive_some() == b""
        assert "200" in await asked(await connect(), get)

    serve(talk)
