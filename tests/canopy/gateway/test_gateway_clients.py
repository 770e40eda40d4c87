"""Clients that are not of this project at the gateway: curl, mosquitto's, and a browser."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import pytest
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, Request, TextMessage

import canopy
from harness.real_overlay import PATIENCE, ROOT, Overlay, status, wait_ready
from overlay.client import Streams, Subscribe
from overlay.stream_client import AddStream
from tests.canopy.gateway.test_gateway_real import Gateway, WebSocket, next_event

pytestmark = pytest.mark.process
BROWSER: Final = shutil.which("chromium") or shutil.which("google-chrome") or ""
CLIENTS: Final = ("curl", "mosquitto_pub", "mosquitto_sub")


def needs(*names: str) -> pytest.MarkDecorator:
    missing = [name for name in names if not shutil.which(name)]
    return pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}")


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    made = Gateway(tmp_path_factory.mktemp("clients"))
    yield made
    made.stop()


@contextmanager
def running(command: Sequence[str]) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def subscriptions(gateway: Gateway) -> int:
    return status(gateway.overlay.clients[0]).subscriptions


def await_subscriptions(gateway: Gateway, count: int) -> None:
    until = time.monotonic() + PATIENCE
    while subscriptions(gateway) < count:
        assert time.monotonic() < until, "nobody subscribes"
        time.sleep(0.05)


@needs(*CLIENTS)
def test_curl_and_mosquitto_hear_each_other(gateway: Gateway) -> None:
    host, port = gateway.mqtt
    mqtt = ["-h", host, "-p", str(port), "-V", "5", "-u", "any", "-P", gateway.all]
    url = f"http://{gateway.http[0]}:{gateway.http[1]}/events"
    bearer = ["-H", f"Authorization: Bearer {gateway.all}"]
    before = subscriptions(gateway)
    selector = "$where/mag >= 5 AND unit = 'C'"
    with (
        running(["mosquitto_sub", *mqtt, "-t", selector, "-q", "1", "-F", "%t %p"]) as by_content,
        running(["curl", "-sN", *bearer, f"{url}?where=mag%3E%3D5"]) as curl,
    ):
        await_subscriptions(gateway, before + 2)
        flat = ["-H", "Content-Type: application/json", "-d"]
        flat += ['{"mag": 5, "unit": "C", "id": "a", "note": "two\\nlines"}']  # as MQTT forbids
        posted = subprocess.run(["curl", "-s", *bearer, url, *flat], capture_output=True, text=True)
        assert json.loads(posted.stdout)["published"] == 1
        for unit, text in (("K", '{"mag": 7}'), ("C", '{"mag": 4}'), ("C", '{"mag": 6}')):
            told = ["-D", "publish", "user-property", "unit", unit]
            command = ["mosquitto_pub", *mqtt, "-q", "1", "-t", "quakes/ak", "-m", text, *told]
            assert subprocess.run(command, timeout=PATIENCE).returncode == 0
        assert by_content.stdout is not None
        assert curl.stdout is not None
        assert by_content.stdout.readline().split() == ["events/event"]
        assert by_content.stdout.readline().split(" ", 1) == ["quakes/ak", '{"mag": 6}\n']
        lines = (line for line in curl.stdout if line.startswith("data: "))
        found = [json.loads(next(lines)[6:])["attributes"] for _ in range(3)]
        assert [(one["mag"], one["unit"]) for one in found] == [(5, "C"), (7, "K"), (6, "C")]


@needs("mosquitto_pub")
@pytest.mark.parametrize(
    ("words", "word"),
    [
        (("-V", "5", "-P", "nothing"), "Not authorized"),
        (("-V", "mqttv311"), "unacceptable protocol version"),
    ],
    ids=["no such token", "an older version"],
)
def test_mosquitto_hears_why_it_is_refused(
    gateway: Gateway, words: Sequence[str], word: str
) -> None:
    host, port = gateway.mqtt
    command = ["mosquitto_pub", "-h", host, "-p", str(port), "-u", "any", "-t", "x", "-m", "{}"]
    done = subprocess.run([*command, *words], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode != 0
    assert word in done.stderr


@needs("node")
def test_the_javascript_client_at_a_real_gateway(gateway: Gateway) -> None:
    node = gateway.overlay.clients[0]
    node.ask(AddStream(0, "rows", replicas=1), Streams, PATIENCE)
    latest = AddStream(0, "latest", replicas=1, key="sensor", capture="sensor IS NOT NULL")
    node.ask(latest, Streams, PATIENCE)
    url = f"http://{gateway.http[0]}:{gateway.http[1]}"
    token = gateway.tokens.add("js", ("publish", "subscribe", "observe"), streams=("rows",))
    script = ROOT / "tests/canopy/gateway/javascript/real.mjs"
    command = ["node", str(script), url, token, gateway.eu]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == {
        "live": [True, True, 5, [1]],
        "call": [42, 1],
        "silence": [],
        "stream": [2, 0, 1, 2],
        "last": [1, 3],
        "none": [404, "unknown"],
        "status": True,
        "who": 1,
        "denied": [True, 403],
    }
    follower = gateway.follow("/events?stream=rows&from=first")
    assert next_event(follower)["id"].endswith("@0:0"), "where it begins, before any event"
    follower.close()
    web = WebSocket(gateway, "/events?stream=rows&from=new", "canopy", f"bearer.{gateway.all}")
    assert web.hear()["at"].endswith("@0:2")
    web.socket.close()


class Page:
    """One page of a browser, by the DevTools protocol."""

    def __init__(self, address: str) -> None:
        host, port = address.split("/")[2].split(":")
        self._socket = socket.create_connection((host, int(port)), PATIENCE)
        self._connection = WSConnection(ConnectionType.CLIENT)
        path = "/" + address.split("/", 3)[3]
        self._socket.sendall(self._connection.send(Request(f"{host}:{port}", path)))
        self._number = 0
        self._receive(AcceptConnection)

    def _receive(self, kind: type[Any]) -> Any:
        """The next thing of this kind that the browser says."""
        while True:
            for event in self._connection.events():
                if isinstance(event, kind):
                    return event
            self._connection.receive_data(self._socket.recv(65_536))

    def evaluate(self, expression: str) -> Any:
        """What the page's script says of this."""
        params = {"expression": expression, "returnByValue": True, "awaitPromise": True}
        return self.call("Runtime.evaluate", params)["result"].get("value")

    def call(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Call a method of the protocol. Returns the result."""
        self._number += 1
        asked = {"id": self._number, "method": method, "params": params}
        self._socket.sendall(self._connection.send(TextMessage(json.dumps(asked))))
        while True:
            text, is_whole = "", False
            while not is_whole:
                part = self._receive(TextMessage)
                text, is_whole = text + part.data, part.message_finished
            told = json.loads(text)
            if told.get("id") == self._number:
                result: dict[str, Any] = told["result"]
                return result

    def until(self, expression: str) -> None:
        end = time.monotonic() + PATIENCE
        while not self.evaluate(expression):
            assert time.monotonic() < end, self.evaluate("document.body.innerText")
            time.sleep(0.05)

    def close(self) -> None:
        self._socket.close()


@contextmanager
def page(url: str, folder: Path) -> Iterator[Page]:
    """A browser without a window that shows `url`."""
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0"]
    options += [f"--user-data-dir={folder}", "--disable-dev-shm-usage", url]
    process = subprocess.Popen([BROWSER, *options], stderr=subprocess.DEVNULL)
    try:
        until = time.monotonic() + PATIENCE
        found: list[str] = []
        while not found:
            assert time.monotonic() < until, "the browser does not start"
            time.sleep(0.05)
            with suppress(OSError, ValueError):
                port = int((folder / "DevToolsActivePort").read_text().splitlines()[0])
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/json") as answer:
                    pages = json.load(answer)
                found = [one["webSocketDebuggerUrl"] for one in pages if one["url"] == url]
        shown = Page(found[0])
        yield shown
        shown.close()
    finally:
        process.terminate()
        process.wait()


BEGUN: Final = "document.querySelectorAll('nav [aria-current]').length == 1"
"""The page's script has run."""


@pytest.mark.skipif(not BROWSER, reason="no browser is installed")
def test_a_browser_shows_and_publishes_events(gateway: Gateway, tmp_path: Path) -> None:
    url = f"http://{gateway.http[0]}:{gateway.http[1]}/"
    with page(url, tmp_path) as shown:
        shown.until(BEGUN)
        shown.evaluate(f"document.getElementById('token').value = '{gateway.all}'")
        shown.evaluate("document.getElementById('where').value = 'mag >= 5'")
        shown.evaluate("document.getElementById('start').click()")
        shown.until("document.getElementById('state').textContent.startsWith('Following')")
        gateway.publish([{"mag": 4, "id": "no"}, {"mag": 5, "id": "<b>yes</b>"}])
        shown.until("document.getElementById('rows').rows.length == 1")
        assert "<b>yes</b>" in shown.evaluate("document.getElementById('rows').innerText")
        shown.evaluate("""document.getElementById('draft').value = '{"mag": 9, "id": "mine"}'""")
        shown.evaluate("document.getElementById('publish').requestSubmit()")
        shown.until("document.getElementById('rows').innerText.includes('mine')")


@pytest.mark.skipif(not BROWSER, reason="no browser is installed")
def test_the_page_of_the_examples_follows_events(tmp_path: Path) -> None:
    """Its gateway has no tokens, and takes pages of files."""
    overlay = Overlay(tmp_path)
    wait_ready(overlay.start())
    command = [
        sys.executable,
        "-m",
        "canopy",
        "gateway",
        "--connect",
        str(tmp_path / "0"),
        "--json",
    ]
    command += ["--http", "127.0.0.1:0", "--origin", "null"]
    with running(command) as process:
        assert process.stdout is not None
        http = json.loads(process.stdout.readline())["http"].rstrip("/")
        text = (ROOT / "examples/web/follow.html").read_text(encoding="utf-8")
        assert "http://127.0.0.1:8470" in text
        copy = tmp_path / "follow.html"
        copy.write_text(text.replace("http://127.0.0.1:8470", http), encoding="utf-8")
        with page(copy.as_uri(), tmp_path / "browser") as shown:
            shown.until("document.getElementById('state').innerText == 'following'")
            with canopy.connect(tmp_path / "0") as client:
                client.publish({"mag": 5, "place": "Nome"})
                shown.until("document.getElementById('quakes').innerText == '5 Nome'")
    overlay.stop()


SEEN: Final = {
    "overlay": "primary",
    "node": "neighbours",
    "streams": "stream",
    "explain?event=told": "the selector is not true",
}
"""What each view of the console says, by the end of its address."""

AXE: Final = """axe.run({resultTypes: ['violations']}).then((found) => found.violations.flatMap(
    (rule) => rule.nodes.map((node) => `${rule.id} ${node.target}: ${node.failureSummary}`)))"""
"""What axe finds on the page: contrast, names of controls, roles, headings, and more."""


@pytest.mark.skipif(not BROWSER, reason="no browser is installed")
def test_the_console_keeps_the_rules_of_accessibility(gateway: Gateway, tmp_path: Path) -> None:
    """Every view, light and dark; and a page that breaks them is found out."""
    axe = Path(pytest.importorskip("axe_core_python").__file__).with_name("axe.min.js")
    gateway.publish({"mag": 4, "id": "told"})
    with page(f"http://{gateway.http[0]}:{gateway.http[1]}/", tmp_path) as shown:
        shown.until(BEGUN)
        shown.evaluate(f"document.getElementById('token').value = '{gateway.all}'")
        shown.evaluate(f"{axe.read_text(encoding='utf-8')}; true")
        for view, text in {**SEEN, "explain?event=told": "published here", "events": ""}.items():
            shown.evaluate(f"location.hash = '{view}'")
            shown.until(f"document.querySelector('main').innerText.includes('{text}')")
            for scheme in ("light", "dark"):
                features = [{"name": "prefers-color-scheme", "value": scheme}]
                shown.call("Emulation.setEmulatedMedia", {"features": features})
                assert shown.evaluate(f"matchMedia('(prefers-color-scheme: {scheme})').matches")
                assert shown.evaluate(AXE) == [], (view, scheme)
        shown.evaluate(UNREADABLE)
        assert {"color-contrast", "label"} <= {told.split()[0] for told in shown.evaluate(AXE)}


UNREADABLE: Final = """document.querySelector('main').innerHTML = '<input><p>pale</p>';
    document.querySelector('main p').style.color = '#777';
    document.querySelector('main p').style.background = '#888'"""


@pytest.mark.skipif(not BROWSER, reason="no browser is installed")
def test_the_console_shows_what_the_node_knows(gateway: Gateway, tmp_path: Path) -> None:
    client = gateway.overlay.clients[0]
    number = client.begin(Subscribe(0, "mag > 7", "large"))
    client.finish(number, PATIENCE)
    assert gateway.publish({"mag": 4, "id": "told"})[0] == 200
    url = f"http://{gateway.http[0]}:{gateway.http[1]}/"
    with page(url, tmp_path) as shown:
        shown.until(BEGUN)
        shown.evaluate(f"document.getElementById('token').value = '{gateway.all}'")
        for view, text in SEEN.items():
            shown.evaluate(f"location.hash = '{view}'")
            shown.until(f"document.querySelector('main').innerText.includes('{text}')")
            assert shown.evaluate("document.getElementById('trouble').hidden") is True
        shown.evaluate("location.hash = 'events'")
        shown.until("!document.getElementById('events').hidden")
        shown.evaluate("document.getElementById('where').focus()")
        shown.until("performance.getEntriesByName(location.origin + '/api/attributes?').length > 0")
        shown.evaluate("document.getElementById('where').value = 'ma'")
        shown.evaluate("document.getElementById('where').setSelectionRange(2, 2)")
        typed = "document.getElementById('where').dispatchEvent(new Event('input'))"
        shown.until(f"{typed}; !document.getElementById('names').hidden")
        assert shown.evaluate("document.getElementById('names').innerText") == "mag"
        shown.evaluate("document.getElementById('where').value = 'mag >'")
        shown.evaluate(typed)
        shown.until("document.getElementById('fault').innerText.includes('^')")
